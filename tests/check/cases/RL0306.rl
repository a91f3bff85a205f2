model policy {
  base    = "tiny"
  service = tinker
}

model other {
  base    = "Qwen/Qwen3-8B"
  service = local
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

model third {
  base    = "tiny"
  weights = "tinker://run/weights/main-000050"
}

train second {
  model     = third
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

model fourth {
  base = "tiny"
}

train third_stage {
  model     = fourth
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference("Qwen/Qwen3-8B", coef = 0.01)
  optimizer = adam(1e-3)
  steps     = 50
}
