# A game for four against the policy's own past, an average for each seat instead of peers: groups of
# one are what that is for. The other game has a seat of its own that nobody trains, and ends early.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env poker = textarena("Poker-v0", players = 4)
  |> play(against = past(every = 5))
  |> rollouts(max_turns = 6)
env tug = python_game("../../../recipes/tug_of_war.py:TugOfWar", seats = ["first", "second"])
  |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = 1 * poker + 3 * (tug |> play(against = self))
  batch     = groups(8, group_size = 1)
  sampling  = sample(max_tokens = 8)
  advantage = rae(decay = 0.9)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 20
}

eval wins {
  model   = main
  env     = tug |> play(against = policy, seat = "second", temperature = 0.5)
  tasks   = 16
  metrics = [win_rate()]
}
