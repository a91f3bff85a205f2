# Competitive programming with tests to run: tinker-cookbook's `code_rl` (DeepCoder), with its values.
#
# SANDBOX_URL names the server of SandboxFusion that runs the programs, as for the cookbook.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env deepcoder = cookbook(
  "tinker_cookbook.recipes.code_rl.code_env:DeepcoderDatasetBuilder",
  args = { batch_size = 128, seed = 0, max_generation_tokens = 24_576 },
)

train main {
  model     = policy
  env       = deepcoder
  batch     = groups(128, group_size = 8)
  sampling  = sample(max_tokens = 24_576, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 187
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 187,
    main.batch.count == 128,
    main.batch.size == 8,
    main.sampling.max_tokens == 24_576,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.deepcoder.args.args.batch_size == 128,
    main.envs.deepcoder.args.args.seed == 0,
    main.envs.deepcoder.args.args.max_generation_tokens == 24_576,
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.deepcoder.rollouts.group == 8,
    main.envs.deepcoder.rollouts.temperature == 1,
    main.envs.deepcoder.rollouts.max_tokens == 24_576,
  ]
}
