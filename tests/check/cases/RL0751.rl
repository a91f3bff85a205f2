model policy {
  base = "tiny"
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

sft round1 {
  model     = policy
  data      = samples(policy, env = guess, n = 100, without = system)
  batch     = 20
  optimizer = adam(1e-3)
  steps     = 5
}
