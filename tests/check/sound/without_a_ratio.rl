# GPG: the log-likelihood weighted by the advantage. Each batch is fresh and used once, so that a
# ratio would be 1.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env numbers = problems(countdown, grader = countdown, samples = 4_096)

train main {
  model     = policy
  env       = numbers
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = gpg()
  loss      = cross_entropy()
  aggregate = seq_mean_token_sum()
  optimizer = adam(4e-5)
  steps     = 50
}
