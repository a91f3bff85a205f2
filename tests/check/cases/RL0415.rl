model policy {
  base = "Qwen/Qwen3-8B"
}

env sudoku = gem("game:Sudoku-v0-easy") |> concat() |> template(qwen3_game)

train main {
  model     = policy
  env       = sudoku
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
