# Habits from YAML, Python and JSON.
model policy {
  base: "Qwen/Qwen3-8B",
  lora-rank = 32
  seed == 1
}
train main {
  env     = 3 * sudoku |> concat()
  metrics = [pass_at(1) pass_at(8)]
  steps   =
  batch   = turns(128,, parallel = 64)
}
eval {
  samples = 8
}
