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
test of_nothing {
  expect = []
}
test other_kinds {
  env    = sums
  expect = [
    reward("4") == "one", reward, contains(reward("4"), "4"), contains(prompt), prompt("4") == "",
    turns.first("4") == 1, prompt < "x", 4 == reward("4"), reward(reply = "4") == 1,
    main.steps == "20", main.loss.name > "ppo", main.steps + 1 == 2,
  ]
}
