model policy {
  base = "Qwen/Qwen3-8b"
}

model other {
  base = "./weights"
}

model third {
  base = "gpt-9"
}

model fifth {
  base     = "Qwen/Qwen3-80B"
  service  = tinker
  renderer = qwen3_instruct
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

model fourth {
  base = "tiny"
}

train second {
  model     = fourth
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference("Qwen/Nope-8B", coef = 0.01)
  optimizer = adam(1e-3)
  steps     = 50
}
