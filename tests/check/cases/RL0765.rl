model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

judge helpful = rubric("Does it help?", model = big, max_tokens = 9_000)
judge other = rubric("Is it brief?", model = big, max_tokens = 8_000)
env essays = rows("data/prompts.jsonl") |> judged({ a = helpful  b = other })

train main {
  model     = policy
  env       = essays
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
