model policy {
  base      = "tiny"
  lora_rank = 8
}

sft warmup {
  model     = policy
  data      = demonstrations(textarena("TicTacToe-v0") |> play(against = self), n = 100, policy = model)
  optimizer = adam(1e-3)
  steps     = 50
}
