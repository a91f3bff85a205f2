# Grade-school math, 64 answers to each: tinker-cookbook's `math_rl` with `env=gsm8k`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env school(part: string = "train") = problems(
  gsm8k,
  split = part,
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = school()
  batch     = groups(32, group_size = 64)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(8e-5)
  epochs    = 1
  save      = every(20, ttl = 7d)
}

eval heldout {
  model = main
  env   = school(part = "test")
  tasks = 1_319
  every = 20
  first = true
}

# `rlc test` runs these.
test the_number_in_the_box_counts {
  env    = school()
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
    main.steps == 234,
    main.epochs == 1,
    main.batch.count == 32,
    main.batch.size == 64,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 8e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.school.args.split == "train",
    main.envs.school.args.few_shot == "strawberry.jsonl",
    main.envs.school.args.suffix == " Write your answer in \\boxed{} format.",
    main.save.every == 20,
    heldout.tasks == 1_319,
    heldout.every == 20,
    heldout.first == true,
  ]
}
