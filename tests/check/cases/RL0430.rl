model policy {
  base      = "tiny"
  lora_rank = 8
}

env sure = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(sum, low = 1, high = 1)

train main {
  model     = policy
  env       = sure
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
