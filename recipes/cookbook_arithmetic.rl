# A data set of tinker-cookbook as it is: the sums of its recipe `math_rl`, learned in a few steps.
#
#     rlc run recipes/cookbook_arithmetic.rl --rehearse     on the tiny model, which cannot add
#
# Any RLDatasetBuilder does, by module and name; its module may stand beside the recipe. The names
# of model and renderer and the size of a group are filled in: the recipe decides them already.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env sums = cookbook(
  "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
  args = { batch_size = 100, n_batches = 100 },
)

train main {
  model     = policy
  env       = sums
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 8, temperature = 1.0)
  advantage = cookbook.center()  # reward less the group's mean
  loss      = importance_sampling()
  optimizer = adam(1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 20
}

# `rlc test` runs these.
test the_sum_counts {
  env    = sums
  expect = [reward("91") == 1, reward("90") == 0, contains(prompt, "44 + 47")]
}

test the_plan {
  expect = [
    main.steps == 20,
    main.batch.count == 100,
    main.batch.size == 4,
    main.sampling.max_tokens == 8,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 0.0001,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.sums.args.args.batch_size == 100,
    main.envs.sums.args.args.n_batches == 100,
  ]
}
