# A game with a tool, on an OpenReward server of one's own. The tiny model first imitates calls with
# random arguments; then the reward teaches it which button opens the doors.
#
#     python examples/openreward_games.py &      # the server; needs no key
#     rlc run recipes/openreward_games.rl

param learning_rate: float = 5e-4

model policy {
  base      = "tiny"
  lora_rank = 32
}

# A plain message leaves the game, which gives no reward then: `nonterminal` says that it is 0.
env guess = openreward("Games/Guess", base_url = "http://127.0.0.1:8462", sessions = 48)
  |> reward(sum, nonterminal = 0.0)

# Somebody who calls the tool as it should be, and presses at random. A call has 65 tokens here, and
# each has to be nearly certain before most calls can be read: hence the many steps.
sft calls {
  model     = policy
  data      = rows("data/openreward_games.jsonl")
  batch     = 8
  steps     = 300
  optimizer = adam(1e-2, schedule = linear(warmup = 5))
}

# Without a deviation to divide by, a rare failure late in the run moves little.
train main {
  model     = calls
  env       = guess
  batch     = groups(3, group_size = 16)
  sampling  = sample(max_tokens = 72)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(learning_rate, schedule = linear())
  steps     = 50
  on_error  = retry(2) then drop
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    calls.steps == 300,
    calls.batch == 8,
    calls.data.path == "data/openreward_games.jsonl",
    calls.optimizer.learning_rate == 0.01,
    calls.optimizer.schedule.warmup == 5,
    calls.model.base == "tiny",
    calls.model.lora_rank == 32,
    main.on_error.retries == 2,
    main.steps == 50,
    main.batch.count == 3,
    main.batch.size == 16,
    main.sampling.max_tokens == 72,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rloo",
    main.optimizer.learning_rate == 0.0005,
    main.model.base == "tiny",
    main.model.lora_rank == 32,
    main.envs.guess.args.base_url == "http://127.0.0.1:8462",
    main.envs.guess.args.sessions == 48,
    main.envs.guess.reward.reduce == "sum",
  ]
}

test what_it_plays {
  expect = [
    main.envs.guess.id == "Games/Guess",
    main.envs.guess.rollouts.group == 16,
    main.envs.guess.rollouts.max_tokens == 72,
    calls.optimizer.schedule.kind == "linear",
    main.optimizer.schedule.kind == "linear",
  ]
}
