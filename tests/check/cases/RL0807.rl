model policy {
  base      = "tiny"
  lora_rank = 8
}

env shop = agent("data/solve.py:forgets", tasks = rows("data/prompts.jsonl"))

train main {
  model     = policy
  env       = shop
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
