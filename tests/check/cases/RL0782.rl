model policy {
  base      = "tiny"
  lora_rank = 8
}

env ttt = textarena("TicTacToe-v0") |> play(against = policy, seat = "cross")
env taboo = textarena("Taboo-v0", players = 5) |> play(against = self)

train main {
  model     = policy
  env       = ttt + taboo
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
