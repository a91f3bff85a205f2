# An environment of one's own, in Python: a reply is worth the share of it that is a given letter.
#
#     rlc run recipes/python_environment.rl
#
# The factory stands in letters.py, beside this recipe. rlc calls it with the args below; it gives a
# source of episodes, in a few lines. rlc/envs/base.py says all that a source can have.
# The mean reward goes from 0.32 to 1.00, with each of the seeds 1, 2 and 3.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env letters = python("letters:make", args = { letters = "e" })
  |> chat(instruction = "One word only.")

train main {
  model     = policy
  env       = letters
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(5e-4)
  steps     = 30
}

# `rlc test` runs these.
test letters_count {
  env    = letters
  expect = [
    reward("eel") > 0,
    reward("eee") > reward("tree"),
    reward("moon") == 0,
    reward(" EEL ") == reward("eel"),
    reward("e") == 0,
    reward("") == 0,
    contains(prompt, "letter e"),
    contains(prompt, "One word only."),
  ]
}

test the_plan {
  expect = [
    main.steps == 30,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 8,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.0005,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.letters.args.args.letters == "e",
  ]
}
