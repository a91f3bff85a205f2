model policy {
  base = "Qwen/Qwen3-8B"
}

env guess = gem("rg:chain_sum") |> template(qwen3_game)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 2_048)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

eval heldout {
  model   = main
  env     = guess
  tasks   = 500
  samples = 16
  every   = 10
}
