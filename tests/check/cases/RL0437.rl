model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

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

eval heldout {
  model    = main
  env      = guess
  samples  = 8
  sampling = sample(max_tokens = 16, top_k = 1)
  metrics  = [pass_at(1), pass_at(8)]
}
