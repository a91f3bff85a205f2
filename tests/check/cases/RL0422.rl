model policy {
  base      = "tiny"
  lora_rank = 8
}

model other {
  base      = "tiny"
  lora_rank = 16
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

advantage grpo_clipped = returns() |> baseline(mean, over = group) |> clip(0, 0)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo_clipped
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
train second {
  model     = other
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = returns() |> baseline(mean, over = group) |> clip()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
