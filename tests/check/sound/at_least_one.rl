# Trained for pass@k and measured by it: the best of a group gets its lead over the second.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env sums = problems(gsm8k, grader = exact, suffix = " Answer with the number alone.")

env test = problems(
  gsm8k,
  split = test,
  grader = exact,
  suffix = " Answer with the number alone.",
  samples = 200,
)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 32)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo_passk(scale = none)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}

eval solved {
  model   = main
  env     = test
  tasks   = 200
  samples = 16
  metrics = [pass_at(4), pass_at(16)]
  every   = 25
}
