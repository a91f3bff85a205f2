# The same reward, less something for long replies, and for those that are cut off.
model policy {
  base      = "tiny"
  lora_rank = 8
}

env letters = rows("letters.jsonl", grader = { share = grade_with("letters.py:share") })
  |> reward(total - 0.02 * max(tokens - 4, 0) - where(truncated, 0.2, 0))

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
