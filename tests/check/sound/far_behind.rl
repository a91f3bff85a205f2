# Rollouts up to eight steps old, under a loss with a bound on the ratio, watched by a guard that
# ends the overlap.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env numbers = problems(countdown, grader = countdown, samples = 4_096)

train main {
  model     = policy
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = cispo(clip_high = 2)
  optimizer = adam(4e-5)
  overlap   = asynchronous(max_staleness = 8)
  steps     = 50
  deadlines = deadlines(request = 30m, unreachable = 5m, step = 2h)
  kl_guard  = kl_guard(max = 0.05, then = synchronous)
}

train second {
  model     = main
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = stable_reinforce(kl_coeff = 0.1)
  optimizer = adam(4e-5)
  overlap   = asynchronous(max_staleness = 16)
  steps     = 50
}
