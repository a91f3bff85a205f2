env guess(turns: int = 5, size: int = 3) = gem("game:GuessTheNumber-v0-easy", max_turns = turns) |> chat()

model policy {
  base      = "tiny"
  lora_rank = 8
}

train main {
  model     = policy
  env       = guess()
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
