model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = turns(64, parallel = 128)
  sampling  = sample(max_tokens = 16)
  advantage = rebn()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
