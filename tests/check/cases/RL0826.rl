model policy {
  base      = "tiny"
  lora_rank = 8
}

judge brief = compare_with("data/better.py:shorter")
env ranked = rows("data/prompts.jsonl") |> compared(brief)
env alone  = rows("data/prompts.jsonl") |> judged(brief)

train main {
  model     = policy
  env       = ranked + alone
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
