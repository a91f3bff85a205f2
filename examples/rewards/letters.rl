# A reward of one's own, for rows of one's own.
model policy {
  base      = "tiny"
  lora_rank = 8
}

env letters = rows("letters.jsonl", grader = grade_with("letters.py:share"))

train main {
  model     = policy
  env       = letters
  batch     = groups(4, group_size = 16)
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(3e-3)
  steps     = 40
}
