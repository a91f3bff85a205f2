model policy { base = "tiny" }

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

sft warmup {
  model     = policy
  data      = demonstrations(guess, n = 100)
  heldout   = demonstrations(guess, n = 20)
  batch     = 20
  optimizer = adam(1e-3)
  steps     = 5
}
