# An adapter of rank 1, in the attention alone, at a rate that would be too high for any other.

model policy {
  base          = "tiny"
  lora_rank     = 1
  train_mlp     = false
  train_unembed = false
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(5e-2, schedule = linear())
  steps     = 50
}
