env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

model policy {
  base      = "tiny"
  lora_rank = 8
  renderer  = llama3
}

model hosted {
  base     = "openai/gpt-oss-20b"
  renderer = qwen3_instruct
}

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = hosted
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
