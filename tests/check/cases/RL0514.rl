model policy {
  base = "Qwen/Qwen3-8B"
}

env board = gem("game:Sokoban-v0-easy") |> template("lib/unclosed.j2")
env maze  = gem("game:Sokoban-v0-easy") |> template("lib/filter.j2")

train main {
  model     = policy
  env       = board + maze
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
