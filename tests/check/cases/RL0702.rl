# rlc check --import
model policy {
  base      = "tiny"
  lora_rank = 8
}

env either = harbor("../../../recipes/data/harbor/*")
env one    = harbor("../../../recipes/data/harbor/*", runtime = podman)

train main {
  model     = policy
  env       = either + one
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
