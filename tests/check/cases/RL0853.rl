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
env unplayed = problems("data/sums.json", grader = exact)
test no_environment {
  task   = 3
  steps  = 10
  expect = [main.steps == 20]
}
test no_environment_either {
  expect = [reward("4") == 1]
}
test no_replies {
  env    = sums
  expect = [reward == 1, contains(transcript, "4"), contains(prompt, "4")]
}
test no_rehearsal {
  expect = [main.reward > 0.5]
}
test mixture {
  env    = sums + guess
  expect = [reward("4") == 1]
}
test not_played {
  env    = unplayed
  expect = [reward("4") == 1]
}
