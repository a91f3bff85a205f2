# DRO with a strong pull, over the mean of all tokens: the pull is scaled with it.

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
  advantage = center(constant = drop)
  loss      = dro(beta = 0.5)
  aggregate = token_mean()
  optimizer = adam(1e-3)
  steps     = 50
}
