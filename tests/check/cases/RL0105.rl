model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("rg:chain_sum", max_terms = 2) |> chat(instrucion = "Think.")

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_sze = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

env words = rows("data/words.jsonl", grader = grade_with("rewards.py:reward", weight = 2))
