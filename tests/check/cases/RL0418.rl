model policy {
  base = "Qwen/Qwen3.5-9B-Base"
}

env sums = gem("qa:HotpotQA") |> concat_chat() |> template(no)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
