# Hard math, 103,000 problems: tinker-cookbook's `math_rl` with `env=deepmath`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env deepmath = problems(
  "hub:zwhe99/DeepMath-103K",
  answer = "final_answer",
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = deepmath
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(2e-5)
  steps     = 1_610  # 103,022 problems, each once
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 1_610,
    main.batch.count == 64,
    main.batch.size == 16,
    main.sampling.max_tokens == 512,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 2e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.deepmath.args.answer == "final_answer",
    main.envs.deepmath.args.few_shot == "strawberry.jsonl",
    main.envs.deepmath.args.suffix == " Write your answer in \\boxed{} format.",
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.deepmath.id == "hub:zwhe99/DeepMath-103K",
    main.envs.deepmath.rollouts.group == 16,
    main.envs.deepmath.rollouts.temperature == 1,
    main.envs.deepmath.rollouts.max_tokens == 512,
  ]
}
