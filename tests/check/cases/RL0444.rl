model policy {
  base      = "tiny"
  lora_rank = 8
}

env capped = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(sum, high = 0.5)

sft warmup {
  model     = policy
  data      = demonstrations(capped, n = 64)
  optimizer = adam(1e-3)
  steps     = 10
}

train main {
  model     = warmup
  env       = capped
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval heldout {
  model   = main
  env     = capped
  samples = 4
  metrics = [pass_at(4)]
}
