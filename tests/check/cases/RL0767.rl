model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

judge helpful = rubric("Does it help?", model = big, criteria = "rubric")
env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> judged(rubric("Is it brief?", model = big, criteria = "rubric"))
env essays = rows("data/prompts.jsonl") |> judged(helpful)

train main {
  model     = policy
  env       = essays + guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
