model policy {
  base = "Qwen/Qwen3-8B"
}

model other {
  base = "Qwen/Qwen3-8B"
}

env sums = problems(gsm8k, grader = grade_with("lib.rewards:tone"), format_coef = 0.5)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = returns() |> baseline(mean, over = group) |> scale(nonzero_share, over = batch, ddof = 0)
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

env numbers = problems(countdown, grader = countdown, question = "prompt")

train third {
  model     = other
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

train second {
  model     = main
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
