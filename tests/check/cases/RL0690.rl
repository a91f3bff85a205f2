# rlc audit
model policy {
  base = "tiny"
}

env sums = rows("data/asked.jsonl", prompt = "question", grader = grade_with("lib/audited.py:anywhere"))

train main {
  model     = policy
  env       = sums
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
