model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = rows("sums.jsonl", grader = { right = grade_with("sums.py:right")  brief = 0 * grade_with("sums.py:brief") })
  |> reward(right * brief)

train main {
  model     = policy
  env       = sums
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 40)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}
