model policy {
  base      = "tiny"
  lora_rank = 8
}

judge helpful = rubric("Does it help?", model = policy)
env essays = rows("data/prompts.jsonl") |> judged(helpful)

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
