model policy {
  base      = "tiny"
  lora_rank = 8
}

env numbers = problems(countdown, samples = 4_096)
env hard = problems(math, grader = numeric, suffix = " Answer in \\boxed{}.")

train main {
  model     = policy
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = hard
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
