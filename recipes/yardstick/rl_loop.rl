# Grade-school math, right or wrong: tinker-cookbook's `rl_loop`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

env gsm8k = problems(
  gsm8k,
  grader = math,
  shuffle = false,
  few_shot = "strawberry.jsonl",
  suffix = " Provide a numerical answer without units, written inside \\boxed{}.",
  format_coef = 0,
)

train main {
  model     = policy
  env       = gsm8k
  batch     = groups(128, group_size = 16)
  sampling  = sample(max_tokens = 256, temperature = 1.0)
  advantage = cookbook.center(drop_constant = true)  # groups of equals are skipped
  loss      = stable_reinforce()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 58  # the whole batches of 7,473 questions
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test the_number_in_the_box_counts {
  env    = gsm8k
  task   = { question = "What is 2 + 2?", answer = "4" }
  expect = [
    reward("\\boxed{4}") == 1,
    reward("It is \\boxed{4}.") == 1,
    reward("\\boxed{4.0}") == 1,
    reward("\\boxed{5}") == 0,
    reward("4") == 0,
    reward("") == 0,
    contains(prompt, "\\boxed{}"),
  ]
}

test the_plan {
  expect = [
    main.steps == 58,
    main.batch.count == 128,
    main.batch.size == 16,
    main.sampling.max_tokens == 256,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.advantage.args.drop_constant == true,
    main.optimizer.learning_rate == 4e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.envs.gsm8k.args.shuffle == false,
    main.envs.gsm8k.args.few_shot == "strawberry.jsonl",
    main.envs.gsm8k.args.format_coef == 0,
    main.save.every == 20,
  ]
}
