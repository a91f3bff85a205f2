model policy {
  base    = Qwen/Qwen3-8B
  weights = tinker://run/weights/1
}
env a = gem(game:Sudoku-v0-easy) |> chat(instruction = Don't guess)
env b = gem('rg:chain_sum) |> chat(instruction = 'It's easy')
env c = openreward("Games/Guess", base_url = http://127.0.0.1:8462", sessions = 48)
env d = gem("rg:chain_sum") |> chat(instruction = Think first, then answer.)
env e = gem("rg:chain_sum") |> chat(instruction = Think it over well, then answer.")
param rate:float = 1e-4
