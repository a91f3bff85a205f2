# Countdown without the tasks that teach nothing: what was always solved, or never, when it was last
# played is passed over, and a group whose members all did equally well gives way to another task.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

# 4,096 problems, made from a seed. One of ten that would be passed over is played all the same, so
# that what has been forgotten, or has come within reach, is found out.
env numbers = problems(countdown, grader = countdown, samples = 4_096)
  |> curriculum(hopeless = 0%, solved = 100%, explore = 10%)

train main {
  model     = policy
  env       = numbers
  batch     = groups(32, group_size = 8, resample = 16)  # at most 16 replacements a step
  sampling  = sample(max_tokens = 1024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 100
  save      = every(20)
  budget    = $60
}

# `rlc test` runs these.
test the_target_has_to_be_reached {
  env    = numbers
  expect = [
    reward("<answer>20 * 50 / 4</answer>") == 0,
    reward("<answer>50 - 20 + 4</answer>") == 1,
    reward("<answer>34</answer>") == 0,
    reward("50 - 20 + 4") == -0.1,
    reward("") == -0.1,
    contains(prompt, "20, 50, 4"),
  ]
}

test the_plan {
  expect = [
    main.steps == 100,
    main.batch.count == 32,
    main.batch.size == 8,
    main.batch.resample == 16,
    main.sampling.max_tokens == 1_024,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.numbers.args.samples == 4_096,
    main.save.every == 20,
  ]
}
