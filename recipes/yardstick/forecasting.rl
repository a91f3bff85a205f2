# How probable is what happened since: tinker-cookbook's `forecasting` (Prophet Arena), with its values.

model policy {
  base      = "Qwen/Qwen3.8-27B"
  lora_rank = 32
  renderer  = qwen3_8_low_reasoning
}

env arena = cookbook(
  "tinker_cookbook.recipes.forecasting.env:ProphetArenaRLDatasetBuilder",
  args = { groups_per_batch = 16 },
)
env later = cookbook(
  "tinker_cookbook.recipes.forecasting.env:ProphetArenaRLDatasetBuilder",
  args = { groups_per_batch = 16, validation_group_size = 8 },
  split = test,
)

train main {
  model     = policy
  env       = arena
  batch     = groups(16, group_size = 32)
  sampling  = sample(max_tokens = 24_576, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 128
  save      = every(64, ttl = 7d)
}

eval validation {
  model   = main
  env     = later
  samples = 8
  every   = 16
  first   = true
}
