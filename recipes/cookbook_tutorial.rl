# Eight word problems, four steps: the smallest real job on hosted Tinker, for about ten cents.
#
# From the cookbook's tutorial on its RL abstractions: problems with answers to check, groups of
# answers to each, reward = 0.1 (format − 1) + correct.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5
}

# A solved problem goes before each question, and the suffix says how to answer.
env arithmetic = problems(
  "data/word_problems.jsonl",
  grader = math,
  few_shot = "data/word_problems_few_shot.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
  format_coef = 0.1,
  shuffle = false,
)

train main {
  model     = policy
  env       = arithmetic
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  # reward less the group's mean; groups of equals are left out
  advantage = cookbook.center(drop_constant = true)
  loss      = importance_sampling()
  # What the cookbook's get_lr gives for this model, 4.91e-4. It is meant for supervised training:
  # RL mostly takes a tenth of it, or less.
  optimizer = adam(recommended_rate(), beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 4  # each of the eight problems once
}

# `rlc test` runs these.
test the_number_in_the_box_counts {
  env    = arithmetic
  expect = [
    reward("\\boxed{126}") == 1,
    reward("\\boxed{125}") == 0,
    reward("126") == -0.1,
    reward("") == -0.1,
    contains(prompt, "9 trays"),
    contains(prompt, "6 rows of 5 jars"),
    contains(prompt, "Write your answer in"),
  ]
}

test the_plan {
  expect = [
    main.steps == 4,
    main.batch.count == 2,
    main.batch.size == 4,
    main.sampling.max_tokens == 512,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.advantage.args.drop_constant == true,
    main.optimizer.learning_rate == 0.0004905250962784578,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.arithmetic.args.shuffle == false,
    main.envs.arithmetic.args.few_shot == "data/word_problems_few_shot.jsonl",
    main.envs.arithmetic.args.suffix == " Write your answer in \\boxed{} format.",
    main.envs.arithmetic.args.format_coef == 0.1,
  ]
}
