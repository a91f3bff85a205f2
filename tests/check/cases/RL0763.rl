model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

judge helpful = rubric("Does it help?", model = big)
env essays = rows("data/prompts.jsonl") |> compared(helpful) |> rollouts(group_size = 1)

train main {
  model     = policy
  env       = essays
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = reinforce()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
