# Graded by a rubric of each row's own: tinker-cookbook's `rubric.prometheus_experimental`.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

model grader {
  base     = "Qwen/Qwen3.6-35B-A3B"
  renderer = qwen3_5_disable_thinking
}

judge feedback = rubric("prometheus.md", model = grader, scale = [1, 5], max_tokens = 2048)

env tasks = rows("hub:prometheus-eval/Feedback-Collection", prompt = "orig_instruction")
  |> judged(feedback)
  |> reward(1 + 4 * total - 0.1 * truncated)

train main {
  model     = policy
  env       = tasks
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 32, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(1e-5)
  steps     = 999  # 99,952 rows, each once
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test the_score_is_that_of_the_scale {
  env    = tasks
  task   = {
    orig_instruction        = "Say hello."
    orig_criteria           = "Polite?"
    orig_score1_description = "rude"
    orig_score2_description = "curt"
    orig_score3_description = "plain"
    orig_score4_description = "kind"
    orig_score5_description = "warm"
    orig_reference_answer   = "Hello!"
  }
  judge  = 0
  expect = [reward("") == 1]
}

test the_best_is_five {
  env    = tasks
  task   = {
    orig_instruction        = "Say hello."
    orig_criteria           = "Polite?"
    orig_score1_description = "rude"
    orig_score2_description = "curt"
    orig_score3_description = "plain"
    orig_score4_description = "kind"
    orig_score5_description = "warm"
    orig_reference_answer   = "Hello!"
  }
  judge  = 1
  expect = [reward("Hello!") == 5]
}

test the_plan {
  expect = [
    main.steps == 999,
    main.batch.count == 100,
    main.batch.size == 4,
    main.sampling.max_tokens == 32,
    main.sampling.temperature == 1,
    main.loss.name == "stable_reinforce",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 32,
    main.envs.tasks.args.prompt == "orig_instruction",
    main.envs.tasks.judging.judged.judges.feedback.high == 5,
    main.envs.tasks.judging.judged.judges.feedback.max_tokens == 2_048,
    main.save.every == 20,
  ]
}
