# MaxRL divides by the success rate, so rewards start at 0: nothing is taken off for the form.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env sums = problems(gsm8k, grader = regex("([0-9]+)\\s*$"), format_coef = 0)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = maxrl()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
  track     = [wandb("rlc", run = "maxrl"), trackio("rlc"), tensorboard()]
}
