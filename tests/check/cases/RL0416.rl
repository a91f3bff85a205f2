model policy {
  base = "Qwen/Qwen3-8B"
}

env sums = gem("rg:simple_equations") |> template(qwen3_general)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 2_000
  save      = every(20, ttl = 2h)
}
