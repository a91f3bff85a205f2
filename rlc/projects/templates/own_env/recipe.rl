# PROJECT_NAME: a model learns to play the game in game.py. Takes about twenty seconds on two cores.

model policy {
  base      = "tiny"  # included in rlc, 0.8M parameters; `rlc catalog model` lists others
  lora_rank = 8
}

env letters = python("game.py:make", args = { letters = "eo" })
  |> chat(instruction = "One word only.")
  |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = letters
  batch     = groups(4, group_size = 16)  # 4 games a step, each played 16 times
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}

# `rlc test` runs these.
test two_questions {
  env     = letters
  replies = ["eoeo", "eoeo"]  # each half of one letter, half of the other
  expect  = [reward == 1, turns == 2, end == done, contains(transcript, "full of the letter")]
}

test no_way_around_words {
  env    = letters
  expect = [reward("", "") == 0, reward("e", "o") == 0, end("eoeo") == unfinished]
}
