# Sums, graded by a model with a rubric for each: tinker-cookbook's `rubric`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

model grader {
  base     = "Qwen/Qwen3.6-35B-A3B"
  renderer = qwen3_5_disable_thinking
}

judge criteria = rubric(
  "Grade the last reply by the criteria of its task.",
  model = grader,
  scale = [0, 1],
  criteria = "criteria",
  max_tokens = 2048,
)

env sums = rows("sums.jsonl") |> judged(criteria)

train main {
  model     = policy
  env       = sums
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 32, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(1e-5)
  steps     = 100
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test the_criteria_decide {
  env    = sums
  judge  = 1
  expect = [reward("851") == 1, contains(prompt, "22 + 379")]
}

test wrong_earns_nothing {
  env    = sums
  judge  = 0
  expect = [reward("0") == 0]
}

test the_plan {
  expect = [
    main.steps == 100,
    main.batch.count == 100,
    main.batch.size == 4,
    main.sampling.max_tokens == 32,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.sums.judging.judged.judges.criteria.high == 1,
    main.envs.sums.judging.judged.judges.criteria.max_tokens == 2_048,
    main.save.every == 20,
  ]
}
