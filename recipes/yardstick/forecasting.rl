# How probable is what happened since: tinker-cookbook's `forecasting` (Prophet Arena), with its values.

model policy {
  base      = "Qwen/Qwen3.8-27B"
  lora_rank = 32
  renderer  = qwen3_8_low_reasoning
}

env arena = cookbook(
  "tinker_cookbook.recipes.forecasting.env:ProphetArenaRLDatasetBuilder",
  args = { groups_per_batch = 16 },
)
env later = cookbook(
  "tinker_cookbook.recipes.forecasting.env:ProphetArenaRLDatasetBuilder",
  args = { groups_per_batch = 16, validation_group_size = 8 },
  split = test,
)

train main {
  model     = policy
  env       = arena
  batch     = groups(16, group_size = 32)
  sampling  = sample(max_tokens = 24_576, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 128
  save      = every(64, ttl = 7d)
}

eval validation {
  model   = main
  env     = later
  samples = 8
  every   = 16
  first   = true
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 128,
    main.batch.count == 16,
    main.batch.size == 32,
    main.sampling.max_tokens == 24_576,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 0.0001,
    main.model.base == "Qwen/Qwen3.8-27B",
    main.model.lora_rank == 32,
    main.envs.arena.args.args.groups_per_batch == 16,
    main.save.every == 64,
  ]
}

test what_it_plays {
  expect = [
    main.envs.arena.rollouts.group == 32,
    main.envs.arena.rollouts.temperature == 1,
    main.envs.arena.rollouts.max_tokens == 24_576,
    validation.samples == 8,
    validation.every == 16,
    validation.first == true,
  ]
}
