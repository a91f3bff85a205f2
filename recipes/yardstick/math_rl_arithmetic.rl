# Sums of two numbers up to 100: tinker-cookbook's `math_rl` with `env=arithmetic`, its default.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env sums = cookbook(
  "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
  args = { batch_size = 100, n_batches = 100 },
)

train main {
  model     = policy
  env       = sums
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 5, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(1e-5)
  steps     = 100
  save      = every(20, ttl = 7d)
}
