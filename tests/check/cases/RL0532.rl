model policy {
  base = "Qwen/Qwen3-8B"
}

env sums = problems(gsm8k, grader = 0 * numeric)
env essays = rows("lib/rows.jsonl", grader = grade_with("lib.rewards:tone", weights = { kind = 0, clear = 0.0 }))

train main {
  model     = policy
  env       = sums + essays
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
