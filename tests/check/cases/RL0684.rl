model policy {
  base = "tiny"
}

env words = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(where(tokens < 16, 1, total))

train main {
  model     = policy
  env       = words
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
