model policy {
  base = "Qwen/Qwen3-8B"
}

env essays = rows("lib/rows.jsonl", grader = {
  brief  = grade_with("lib/rewards.py:brief")
  polite = grade_with("lib/rewards.py:polite")
  warm   = grade_with("lib/rewards.py:warm")
  tone   = grade_with("lib/rewards.py:tone")
})

train main {
  model     = policy
  env       = essays
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
