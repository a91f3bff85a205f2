model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("Sudoku-v0-easy") |> template("qwen3_gme")

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scale = sd)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  on_error  = retry(2) then skip
}
