model policy {
  base      = "tiny"
  lora_rank = 8
}

env shell = harbor("../../../recipes/data/harbor/*", runtime = subprocess)

train main {
  model     = policy
  env       = shell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
