model policy {
  base     = "vendor/New-8B"
  service  = tinker
  renderer = llama3
  context  = 65_536
  price    = { prefill = $0.2  sample = $0.6  train = $0.6 }
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
