# Replies of a group compared with each other, by a judge behind an endpoint.

param url: string = "http://127.0.0.1:1/v1"

model policy {
  base      = "tiny"
  lora_rank = 8
}

judge better = rubric("More y is better.", model = endpoint(url, model = "judge"), max_tokens = 32)

env paired = rows("word.jsonl") |> compared(better, by = pairwise)
env ranked = rows("word.jsonl") |> compared(better, by = ranking)

train main {
  model     = policy
  env       = paired
  batch     = groups(1, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 25
}

eval heldout {
  model    = main
  env      = rows("word.jsonl", grader = grade_with("words.py:ys"))
  tasks    = 1
  samples  = 512
  sampling = sample(max_tokens = 8)
  first    = true
}
