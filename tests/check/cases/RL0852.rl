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
test too_many_turns {
  env    = sums
  expect = [turns("4") == 2, turns("4", "5") > 2]
}
test above_the_limit {
  env     = guess
  replies = ["3", "4"]
  expect  = [reward > 1, turns == 2]
}
