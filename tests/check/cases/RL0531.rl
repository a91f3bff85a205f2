model policy {
  base = "Qwen/Qwen3-8B"
}

env sums = rows("lib/rows.jsonl", grader = { right = numeric  brief = grade_with("lib.rewards:tone") })

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
