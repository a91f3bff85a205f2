model policy {
  base      = "tiny"
  lora_rank = 8
}

env ttt = textarena("TicTacToe-v0") |> play(against = self)

train main {
  model     = policy
  env       = ttt
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval held {
  model   = main
  env     = ttt
  tasks   = 8
  metrics = [win_rate()]
}
