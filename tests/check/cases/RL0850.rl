# rlc check recipe.rl
model policy {
  base      = "tiny"
  lora_rank = 8
}
env sums = problems("data/sums.json", grader = exact)
env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(sum, high = 1)
train main {
  model     = policy
  env       = 2 * sums + guess
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}
test misspelt {
  env    = sums
  task   = { question = "2 + 2?", anwser = "4" }
  expect = [reward("4") == 1]
}
test too_much {
  env    = sums
  task   = { question = "2 + 2?", answer = "4", hint = "even" }
  expect = [reward("4") == 1]
}
test no_rows {
  env    = guess
  task   = { secret = 3 }
  expect = [reward("3") == 1]
}
