# rlc audit
model policy {
  base = "tiny"
}

env sums = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = sums
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
