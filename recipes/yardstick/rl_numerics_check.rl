# Words counted over many pages, read one a turn: tinker-cookbook's `rl_numerics_check`.

model policy {
  base      = "Qwen/Qwen3.8-27B:peft:262144"  # "Qwen/Qwen3.6-35B-A3B:peft:262144" there
  lora_rank = 32
}

env counting = cookbook(
  "tinker_cookbook.recipes.rl_numerics_check.env:CountingDatasetBuilder",
  args = { batch_size = 16, max_trajectory_tokens = 131_072, max_generation_tokens = 1024 },
)

train main {
  model     = policy
  env       = counting
  batch     = groups(16, group_size = 16)
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_episode_tokens = 131_072)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 100
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 100,
    main.batch.count == 16,
    main.batch.size == 16,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.8-27B:peft:262144",
    main.model.lora_rank == 32,
    main.envs.counting.args.args.batch_size == 16,
    main.envs.counting.args.args.max_trajectory_tokens == 131_072,
    main.envs.counting.args.args.max_generation_tokens == 1_024,
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.counting.rollouts.group == 16,
    main.envs.counting.rollouts.temperature == 1,
    main.envs.counting.rollouts.max_tokens == 1_024,
  ]
}
