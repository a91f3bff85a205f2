# PROJECT_NAME: replies are rewarded by the function in reward.py. Takes about twenty seconds on two cores.

model policy {
  base      = "tiny"  # included in rlc, 0.8M parameters; `rlc catalog model` lists others
  lora_rank = 8
}

env words = rows("data/words.jsonl", grader = grade_with("reward.py:share"), split = first(75%))
env unseen = rows("data/words.jsonl", grader = grade_with("reward.py:share"), split = last(25%))

train main {
  model     = policy
  env       = words
  batch     = groups(6, group_size = 16)  # 6 rows a step, 16 replies to each
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(3e-3)
  steps     = 30
}

eval heldout {
  model   = main
  env     = unseen
  tasks   = 4
  samples = 8
  metrics = [mean_reward()]
  first   = true  # before the first step as well, to compare
}

# `rlc test` runs these.
test letters_count {
  env    = words
  task   = { prompt = "Write a word with many e.", letter = "e" }
  expect = [
    reward("tree") == 0.5,
    reward("TREE") == reward("tree"),
    reward("moon") == 0,
    contains(prompt, "many e"),
  ]
}

test no_way_around_a_word {
  env    = words
  task   = { prompt = "Write a word with many e.", letter = "e" }
  expect = [reward("") == 0, reward("e") == 0]
}
