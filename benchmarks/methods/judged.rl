# A judge that a stage has taught to count rewards another model.

param verdicts: string = "verdicts.jsonl"
param warmth: float = 0.0

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
  data      = rows(verdicts)
  batch     = 32
  optimizer = adam(3e-3)
  steps     = 80
}

judge taste = rubric(
  "How many y?",
  model = grader,
  prompt = "question.j2",
  max_tokens = 24,
  temperature = warmth,
)

train main {
  model     = policy
  env       = rows("word.jsonl") |> judged(taste)
  batch     = groups(1, group_size = 32)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 12
}

eval heldout {
  model    = main
  env      = rows("word.jsonl", grader = grade_with("words.py:ys"))
  tasks    = 1
  samples  = 512
  sampling = sample(max_tokens = 8)
  first    = true
}
