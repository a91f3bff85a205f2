# Competitive programming with tests to run: tinker-cookbook's `code_rl` (DeepCoder), with its values.
#
# SANDBOX_URL names the server of SandboxFusion that runs the programs, as for the cookbook.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env deepcoder = cookbook(
  "tinker_cookbook.recipes.code_rl.code_env:DeepcoderDatasetBuilder",
  args = { batch_size = 128, seed = 0, max_generation_tokens = 24_576 },
)

train main {
  model     = policy
  env       = deepcoder
  batch     = groups(128, group_size = 8)
  sampling  = sample(max_tokens = 24_576, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 187
  save      = every(20, ttl = 7d)
}
