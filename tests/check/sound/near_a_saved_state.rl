# The penalty holds on to a state that was saved before, and each token answers for the later
# ones as well.

model policy {
  base = "Qwen/Qwen3-8B"
}

env numbers = problems(countdown, grader = countdown, samples = 4_096)

train main {
  model     = policy
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = reinforce_pp_baseline()
  loss      = importance_sampling()
  aggregate = token_mean()
  kl        = reference("tinker://run-7/weights/main-000100", coef = 0.001, discount = 0.99)
  optimizer = adam(4e-5)
  steps     = 50
}
