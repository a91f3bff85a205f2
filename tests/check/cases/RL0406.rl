model policy {
  base = "openai/gpt-oss-20b"
}

env guess = gem("rg:chain_sum") |> template(qwen3_game)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
