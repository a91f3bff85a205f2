# Terminal-Bench in containers, with a shell: tinker-cookbook's `harbor_rl`, with its values.

model policy {
  base      = "moonshotai/Kimi-K2.6"
  lora_rank = 32
}

# Two tasks of our own; `harbor datasets download terminal-bench@2.0` has 89 more.
env tasks = harbor("../data/harbor/*", turns = 10, timeout = 2m)
  |> chat(history = sampled)  # the cookbook writes earlier turns anew: a sequence a turn
  |> rollouts(timeout = 1h, step_timeout = 15m)

train main {
  model     = policy
  env       = tasks
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 8192, temperature = 1.0, max_episode_tokens = 32_768)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 12  # the 89 tasks once
  save      = every(5, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 12,
    main.batch.count == 8,
    main.batch.size == 4,
    main.sampling.max_tokens == 8_192,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "moonshotai/Kimi-K2.6",
    main.model.lora_rank == 32,
    main.envs.tasks.args.turns == 10,
    main.envs.tasks.args.timeout == 2m,
    main.save.every == 5,
  ]
}

test what_it_plays {
  expect = [
    main.envs.tasks.id == "../data/harbor/*",
    main.envs.tasks.max_turns == 10,
    main.envs.tasks.rollouts.group == 4,
    main.envs.tasks.rollouts.temperature == 1,
    main.envs.tasks.rollouts.max_tokens == 8_192,
    main.envs.tasks.rollouts.timeout == 1h,
  ]
}
