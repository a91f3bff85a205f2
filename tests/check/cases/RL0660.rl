model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

loss mine {
  token = ratio * adv
}

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = mine
  optimizer = adam(1e-3)
  steps     = 50
}
