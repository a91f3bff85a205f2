# A judge that a stage of the same job has taught rewards what another model writes: first the judge
# learns from 256 verdicts to say how many y a word has, then the policy learns to please it. Both are
# the model that comes along; in about a minute the judge's score goes from 0.3 to 1.

model policy {
  base      = "tiny"
  lora_rank = 8
}

model reader {
  base      = "tiny"
  lora_rank = 32
}

sft grader {
  model     = reader
  data      = rows("data/judged_verdicts.jsonl")
  batch     = 32
  optimizer = adam(3e-3)
  steps     = 100
}

# Asked in the few words that so small a model can learn. A larger one is asked without a `prompt`.
judge taste = rubric(
  "How many y?",
  model = grader,
  prompt = "data/judged_question.j2",
  max_tokens = 24,
)

env words = rows("data/judged_words.jsonl") |> judged(taste)

train main {
  model     = policy
  env       = words
  batch     = groups(1, group_size = 32)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}

# `rlc test` runs these.
test the_judge_decides {
  env    = words
  judge  = 0.75
  expect = [reward("yes") == 0.75, contains(prompt, "Say a word.")]
}

test the_worst_earns_nothing {
  env    = words
  judge  = 0
  expect = [reward("yes") == 0]
}

test the_plan {
  expect = [
    grader.steps == 100,
    grader.batch == 32,
    grader.data.path == "data/judged_verdicts.jsonl",
    grader.optimizer.learning_rate == 0.003,
    grader.model.base == "tiny",
    grader.model.lora_rank == 32,
    main.steps == 20,
    main.batch.count == 1,
    main.batch.size == 32,
    main.sampling.max_tokens == 8,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.words.judging.judged.judges.taste.max_tokens == 24,
  ]
}
