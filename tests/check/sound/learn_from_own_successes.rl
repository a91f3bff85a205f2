# Rejection sampling: the model imitates those of its own answers that were right, and is trained
# on from there.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env sums = problems(gsm8k, grader = numeric, format_coef = 0)

sft own {
  model     = policy
  data      = demonstrations(sums, n = 512, policy = model, min_reward = 1)
  batch     = 64
  optimizer = adam(1e-4, schedule = cosine(warmup = 4, floor = 10%))
  epochs    = 2
}

train main {
  model     = own
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
