# A shell in containers, graded token by token by a teacher: tinker-cookbook's
# `distillation.on_policy_distillation_harbor_multi_turn`, with its values.

model student {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

model teacher {
  base = "Qwen/Qwen3.6-35B-A3B"
}

# Two tasks of our own; `harbor datasets download terminal-bench@2.0` has 89 more.
env tasks = harbor("../data/harbor/*", turns = 10, timeout = 2m)
  |> chat(history = sampled)  # the cookbook writes earlier turns anew: a sequence a turn
  |> rollouts(step_timeout = 10m)

train main {
  model     = student
  env       = tasks
  teacher   = reverse_kl(teacher, coef = 1.0)
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 8192, temperature = 1.0, max_episode_tokens = 32_768)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 12  # the 89 tasks once
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
    main.advantage.name == "none",
    main.optimizer.learning_rate == 0.0001,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.tasks.args.turns == 10,
    main.envs.tasks.args.timeout == 2m,
  ]
}

test what_it_plays {
  expect = [
    main.envs.tasks.id == "../data/harbor/*",
    main.envs.tasks.max_turns == 10,
    main.envs.tasks.rollouts.group == 4,
    main.envs.tasks.rollouts.temperature == 1,
    main.envs.tasks.rollouts.max_tokens == 8_192,
  ]
}
