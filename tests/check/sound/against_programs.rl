# Programs on the other side, which sample nothing: matches of a fixed opponent cost what the policy
# samples alone. A seat that is trained against a function, and groups of one seat, are no oversight.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env board = textarena("TicTacToe-v0", illegal = -2) |> chat()
env tug = python_game("../../../recipes/tug_of_war.py:TugOfWar") |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = (board |> play(against = random(), seat = "player_1"))
    + (tug |> play(against = scripted("players.py:pull", args = { letter = "e" })))
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 20
}

eval wins {
  model   = main
  env     = board |> play(against = perfect())
  tasks   = 16
  metrics = [win_rate()]
}
