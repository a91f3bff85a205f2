# The model comes from another file, the sizes from params, and the evaluation goes through every
# tenth task of another game.

import "lib/model.rl"

param groups_a_step = 6
param rate: float = 3e-4

env hard = gem("game:Mastermind-v0-easy")
  |> chat(instruction = "One guess at a time.")
  |> workers(threads, count = 4)
  |> reward(max, low = 0)

env easy = gem("game:GuessTheNumber-v0-hard", max_turns = 3) |> chat()

train main {
  model     = policy
  env       = hard
  batch     = groups(groups_a_step * 2, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(rate / 2)
  overlap   = synchronous()
  steps     = 50
}

eval transfer {
  model   = main
  env     = easy
  tasks   = 20
  samples = 2
}
