# A chat wrapper of GEM around a single question: it brings the tokenizer's own chat template, so
# it is not without effect.

model policy {
  base = "Qwen/Qwen3-8B"
}

env rules = gem("logic:RuleTaker-d3") |> concat_chat_on_reset() |> template("data/boxed.j2")

train main {
  model     = policy
  env       = rules
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
