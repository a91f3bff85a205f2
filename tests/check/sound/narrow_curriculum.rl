# Only tasks that are solved now and then: what nearly always or nearly never works is passed
# over, and groups of equals are replaced.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env numbers = problems(countdown, grader = countdown, samples = 4_096)
  |> curriculum(hopeless = 5%, solved = 95%, explore = 2%)

train main {
  model     = policy
  env       = numbers
  batch     = groups(48, group_size = 16, resample = 48)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo(constant = drop)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
  save      = every(10, keep = 1, rolling = 3)
  budget    = limit(tokens = 500_000_000, time = 30h)
}
