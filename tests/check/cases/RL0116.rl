# --set policy.renderer="qwen3_instruct"
model policy {
  base      = "tiny"
  lora_rank = 8
  renderer  = qwen3
}

env guess = gem("qa:HotpotQA") |> template("no") |> rollouts(group = 4)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, of = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scale = "std")
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
