# A reward that sees the whole conversation, and waits for another program.
model policy {
  base      = "tiny"
  lora_rank = 8
}

env chain = rows("chain.jsonl", grader = grade_with("chain.py:judged"))

train main {
  model     = policy
  env       = chain
  batch     = groups(4, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(3e-3)
  steps     = 20
}
