model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = ppo(clip_low = 0.2, clip_high = 0.2)
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = guess
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = ppo(clip_low = 1.2, clip_high = 0.8)
  optimizer = adam(1e-3)
  steps     = 50
}

train third {
  model     = second
  env       = guess
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = ppo(0.2)
  optimizer = adam(1e-3)
  steps     = 50
}

train fourth {
  model     = third
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = cispo(clip_high = 0.28)
  optimizer = adam(1e-3)
  steps     = 50
}

train fifth {
  model     = fourth
  env       = guess
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = gspo(clip_low = 0.8, clip_high = 1.2)
  optimizer = adam(1e-3)
  steps     = 50
}

train sixth {
  model     = fifth
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = cispo(clip_low = 1.1)
  optimizer = adam(1e-3)
  steps     = 50
}
