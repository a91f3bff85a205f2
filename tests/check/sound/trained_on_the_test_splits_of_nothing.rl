# Countdown has further splits for later stages: each is trained on once, and the test split is
# only evaluated. No split shares a problem with another.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env first_stage = problems(countdown, grader = countdown)

env next_stage = problems(countdown, split = "stage2", grader = countdown, shuffle = false)

env test = problems(countdown, split = test, grader = countdown)

train main {
  model     = policy
  env       = first_stage
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}

train more {
  model     = main
  env       = next_stage
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 25
}

eval held_out {
  model = more
  env   = test
  tasks = 1_024
  every = 5
}
