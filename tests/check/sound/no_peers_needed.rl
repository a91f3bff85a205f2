# Groups of one: plain REINFORCE compares with nobody, and RLOO with `singleton = raw` keeps the
# return.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(64, group_size = 1)
  sampling  = sample(max_tokens = 16)
  advantage = reinforce()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = guess
  batch     = groups(64, group_size = 1)
  sampling  = sample(max_tokens = 16)
  advantage = rloo(singleton = raw)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
