# Two guesses at one of ten numbers: the second prompt repeats the first observation, and is a
# sequence of its own.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env guess = gem("game:GuessTheNumber-v0-easy", max_turns = 2) |> concat() |> template(qwen3_game)

train main {
  model     = policy
  env       = guess
  batch     = turns(200, parallel = 100)
  sampling  = sample(max_tokens = 512)
  advantage = oat.rebn(gamma = 0.9)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
