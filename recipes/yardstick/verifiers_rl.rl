# A package of the Environments Hub: tinker-cookbook's `verifiers_rl`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

train main {
  model     = policy
  env       = verifiers("primeintellect/reverse-text")
  batch     = groups(32, group_size = 8)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 31
  save      = every(10, ttl = 7d)
}
