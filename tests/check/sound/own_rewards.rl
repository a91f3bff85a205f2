# Prompts without answers, and two rewards of one's own with their weights. The rows were imitated
# before, but there is no other split: nothing is evaluated.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guesses = rows(
  "data/rows.jsonl",
  grader = {
    digits = grade_with("environments.py:digits")
    short  = 0.1 * grade_with("environments.py:short")
  },
)

sft form {
  model     = policy
  data      = rows("data/rows.jsonl")
  batch     = 12
  optimizer = adam(1e-3)
  steps     = 3
}

train main {
  model     = form
  env       = guesses
  batch     = groups(12, group_size = 6)
  sampling  = sample(max_tokens = 24)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}
