model policy {
  base = "Qwen/Qwen3-8B"
}

env maze  = python("lib/games.py:make", args = { folder = "mazes", txt = "Walk." })
env chess = python("lib/games.py:make", args = { size = 8 })
env board = python("lib/games.py:Board", args = { size = 8, colour = "red" })
env text  = python("json:loads", args = { s = "{}" }) |> workers(executor = "lib/games.py:make")
env sums  = cookbook("lib/games.py:make", args = { folder = "sums", group_size = 4 })

train main {
  model     = policy
  env       = maze + chess + board + text + sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
