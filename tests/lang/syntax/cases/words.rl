param learning_rate: float = 4e-5x
model policy {
  base = 'Qwen/Qwen3-8B'
  path = "C:\models"
  rank = 32;
  note = "unfinished
  cost = $ 25
  rate = .5
  größe = 1e999
}
// an old habit
