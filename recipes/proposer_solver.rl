# A proposer and four solvers: one adapter plays all of them (arXiv 2505.03335). The proposer is
# paid for sums that some solvers get right and others do not, so that they become harder as the
# solvers become better; nothing but the rules of the game is given.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env riddles = python_game(
  "riddles:Riddle",
  args = { solvers = 4 },
  seats = ["proposer", "solver", "solver", "solver", "solver"],
)
  |> rollouts(max_turns = 1)  # moves of one seat

train main {
  model     = policy
  env       = riddles |> play(against = self)
  batch     = groups(64, group_size = 1)
  sampling  = sample(max_tokens = 128)
  advantage = rae()  # proposers and solvers each have an average of their own
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 100
}

eval solving {
  model   = main
  env     = riddles |> play(against = policy, seat = "solver")  # sums of the proposer that it was
  tasks   = 64
  every   = 25
  first   = true
  metrics = [mean_reward()]
}
