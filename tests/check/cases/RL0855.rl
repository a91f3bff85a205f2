# rlc test recipe.rl
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
test strict {
  env    = sums
  task   = { question = "2 + 2?", answer = "4" }
  expect = [
    reward("4") == 1,
    reward("5") == 1,
    reward("4 or 5") > reward("5"),
    contains(prompt, "3 + 3"),
    contains(transcript("4"), "4") == false,
    end("4") == unfinished,
  ]
}
test plan {
  expect = [
    main.steps == 10, main.loss.name == "ppo", contains(main.needs, "vllm"), main.tokens.high < 10,
  ]
}
