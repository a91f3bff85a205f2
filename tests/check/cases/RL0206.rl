model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling(0.2)
  optimizer = adam(1e-3, 0.9, 0.95, 1e-8, 0, 0, constant(), 1)
  steps     = 50
}
