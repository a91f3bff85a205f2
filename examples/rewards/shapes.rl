# Several rewards, each with its name and its weight. What weighs 0 is a metric only.
model policy {
  base      = "tiny"
  lora_rank = 8
}

env letters = rows(
  "letters.jsonl",
  grader = {
    share  = grade_with("letters.py:share")
    shape  = 0.5 * grade_with("letters.py:shape", weights = { one_word = 0.2, plain = 0.8 })
    length = 0 * grade_with("letters.py:length")
  },
)

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
