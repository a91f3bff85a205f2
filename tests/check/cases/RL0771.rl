model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

judge helpful = rubric("Does it help?", model = big)
env ranked = rows("data/prompts.jsonl") |> compared(helpful) |> rollouts(group_size = 24)
env essays = rows("data/prompts.jsonl") |> compared(helpful, by = pairwise) |> rollouts(group_size = 12)

train main {
  model     = policy
  env       = essays + ranked
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
