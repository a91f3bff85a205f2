model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 1)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = guess
  batch     = turns(64)
  sampling  = sample(max_tokens = 16)
  advantage = returns(gamma = 0.9) |> baseline(mean, over = batch) |> scale(std, over = group)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train third {
  model     = second
  env       = guess
  batch     = groups(16, group_size = 1, resample = 2)
  sampling  = sample(max_tokens = 16)
  advantage = reinforce()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

env counted = problems(gsm8k, grader = numeric) |> curriculum()

train fourth {
  model     = third
  env       = counted
  batch     = groups(16, group_size = 1)
  sampling  = sample(max_tokens = 16)
  advantage = reinforce()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
