model policy {
  base = "Qwen/Qwen3-8B"
}

env sums = gem("rg:chain_sum") |> template(qwen3_game)

train main {
  model     = policy
  env       = sums
  batch     = groups(128, group_size = 8)
  sampling  = sample(max_tokens = 2_048)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
  budget    = limit(usd = $0.01, tokens = 1_000)
}
