model policy {
  base = "openai/gpt-oss-20b"
}

env sums = problems(gsm8k, suffix = " Answer in \\boxed{}.")

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(recommended_rate(0.1))
  steps     = 50
}
