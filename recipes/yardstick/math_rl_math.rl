# Competition math, 12,000 problems: tinker-cookbook's `math_rl` with `env=math`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env competition(part: string = "train") = problems(
  math,
  split = part,
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = competition()
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(2e-5)
  epochs    = 1
  save      = every(20, ttl = 7d)
}

eval math500 {
  model = main
  env   = competition(part = "test")
  tasks = 500
  every = 20
  first = true
}

# `rlc test` runs these.
test the_number_in_the_box_counts {
  env    = competition()
  task   = { question = "What is 2 + 2?", answer = "4" }
  expect = [
    reward("\\boxed{4}") == 1,
    reward("It is \\boxed{4}.") == 1,
    reward("\\boxed{4.0}") == 1,
    reward("\\boxed{5}") == 0,
    reward("4") == -0.1,
    reward("") == -0.1,
    contains(prompt, "\\boxed{}"),
  ]
}

test the_plan {
  expect = [
    main.steps == 188,
    main.epochs == 1,
    main.batch.count == 64,
    main.batch.size == 16,
    main.sampling.max_tokens == 512,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 2e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.competition.args.split == "train",
    main.envs.competition.args.few_shot == "strawberry.jsonl",
    main.envs.competition.args.suffix == " Write your answer in \\boxed{} format.",
    main.save.every == 20,
    math500.tasks == 500,
    math500.every == 20,
    math500.first == true,
  ]
}
