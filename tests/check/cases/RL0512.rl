# rlc check --import
model policy {
  base = "Qwen/Qwen3-8B"
}

env board = python("lib/boards.py:make")
env sizes = python("lib/games.py:sizes")

train main {
  model     = policy
  env       = board + sizes
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
