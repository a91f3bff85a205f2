# A bracket left out is reported where it is missing, not at the end of the file.
model policy {
  base = "Qwen/Qwen3-8B"

env sudoku = gem("game:Sudoku-v0-easy" |> concat()

train main {
  model = policy
  batch = turns(128, parallel = 64
  save  = every(20, keep = 3]
  steps = 200
}
}
