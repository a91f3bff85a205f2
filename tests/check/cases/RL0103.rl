model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

loss mine = ppo() {
  clip_high = 1.3
}

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.grop()
  loss      = importance_samplin()
  optimizer = lion(1e-3)
  steps     = 50
}
