# Environments of one's own on the executor of a cluster; the factory takes a record.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env own = python("environments:make", args = { sizes = [3, 5, 8], seed = 7 })
  |> workers(executor = "environments:executor")

train main {
  model     = policy
  env       = own
  batch     = groups(3, group_size = 33)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
