# A game whose board is in every observation, and a template of one's own that repeats the rules:
# nothing has to be remembered, and no prompt grows.

model policy {
  base = "Qwen/Qwen3-8B"
}

env room = gem("game:Sokoban-v0-easy") |> template("data/sokoban.j2")

train main {
  model     = policy
  env       = room
  batch     = turns(250, parallel = 50)
  sampling  = sample(max_tokens = 512)
  advantage = gem.rebn(gamma = 0.95)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
