model policy {
  base = "tiny"
}

env words = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(total - 1_000 * tokens)

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
