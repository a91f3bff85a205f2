# A word to spell backward, on an OpenReward server of one's own. The environment has a terminal
# tool: the model's plain message is its answer, and ends the episode.
#
#     python examples/openreward_games.py &      # the server; needs no key
#     rlc run recipes/openreward_reverse.rl

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

env reverse = openreward("Games/Reverse", base_url = "http://127.0.0.1:8462", sessions = 32)

train main {
  model     = policy
  env       = reverse
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 40
  on_error  = retry(2) then drop
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.on_error.retries == 2,
    main.steps == 40,
    main.batch.count == 8,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.reverse.args.base_url == "http://127.0.0.1:8462",
    main.envs.reverse.args.sessions == 32,
  ]
}

test what_it_plays {
  expect = [
    main.envs.reverse.id == "Games/Reverse",
    main.envs.reverse.rollouts.group == 8,
    main.envs.reverse.rollouts.max_tokens == 16,
  ]
}
