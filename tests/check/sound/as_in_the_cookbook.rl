# The cookbook's own grader and a tenth of its own rate, and two data sets of which each task comes
# equally often, though one has more of them.

model policy {
  base     = "Qwen/Qwen3-8B"
  renderer = qwen3_disable_thinking
}

env sums = problems(gsm8k, grader = cookbook_math, suffix = " Put your answer in \\boxed{}.")
env hard = problems(math, grader = cookbook_math, suffix = " Put your answer in \\boxed{}.")

train main {
  model     = policy
  env       = sums + hard
  weight    = tasks
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(recommended_rate(0.1))
  epochs    = 1
}
