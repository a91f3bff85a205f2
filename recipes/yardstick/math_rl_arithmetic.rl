# Sums of two numbers up to 100: tinker-cookbook's `math_rl` with `env=arithmetic`, its default.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env sums = cookbook(
  "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
  args = { batch_size = 100, n_batches = 100 },
)

train main {
  model     = policy
  env       = sums
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 5, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(1e-5)
  steps     = 100
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test the_sum_counts {
  env    = sums
  expect = [reward("91") == 1, reward("90") == 0, contains(prompt, "44 + 47")]
}

test the_plan {
  expect = [
    main.steps == 100,
    main.batch.count == 100,
    main.batch.size == 4,
    main.sampling.max_tokens == 5,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.sums.args.args.batch_size == 100,
    main.envs.sums.args.args.n_batches == 100,
    main.save.every == 20,
  ]
}
