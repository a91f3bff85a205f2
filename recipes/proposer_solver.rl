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

# `rlc test` runs these.
test a_sum_has_to_be_one {
  env    = riddles |> play(against = self)
  expect = [
    reward("hello") == -1,
    reward("2 + 2") == 0,
    reward(" 2 + 2\n") == 0,
    reward("1000 + 1") == -1,
    reward.valid("2 + 2") == 1,
    contains(prompt, "Write one sum"),
  ]
}

test the_plan {
  expect = [
    main.steps == 100,
    main.batch.count == 64,
    main.batch.size == 1,
    main.sampling.max_tokens == 128,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rae",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.riddles.args.args.solvers == 4,
    main.envs.riddles.rollouts.max_turns == 1,
    solving.tasks == 64,
    solving.every == 25,
    solving.first == true,
  ]
}
