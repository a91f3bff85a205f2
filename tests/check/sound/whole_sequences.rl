# One ratio a sequence, four updates a batch, bounds ten times as wide as in the paper.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env numbers = problems(countdown, grader = countdown, samples = 4_096)

train main {
  model     = policy
  env       = numbers
  batch     = groups(32, group_size = 8, updates = 4)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = gspo(clip_low = 0.997, clip_high = 1.004)
  aggregate = seq_mean_token_mean()
  optimizer = adam(4e-5)
  steps     = 50
}
