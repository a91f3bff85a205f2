model policy {
  base = "openai/gpt-oss-120b:peft:131072"
}
model big = policy { base = "openai/gpt-oss-20b" }
env numbers = problems(countdown, grader = countdown)
train main {
  env       = numbers
  sampling  = sample(max_tokens = 80_000)
  teacher   = reverse_kl(big)
  optimizer = adam(1e-5)
  model     = policy
  batch     = groups(16, group_size = 8)
  advantage = grpo()
  loss      = importance_sampling()
  steps     = 50
}
