model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem() |> template()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(beta1 = 0.9)
  steps     = 50
}
