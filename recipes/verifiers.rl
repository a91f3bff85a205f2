# An environment of Prime Intellect's verifiers, which plays two turns and rewards with a rubric.
#
#     pip install 'rlc[verifiers]'
#     rlc run recipes/verifiers.rl
#
# The environment stands in word_lists.py, beside this recipe. One of the Environments Hub is named
# by its package: `prime env install primeintellect/wordle`, then `verifiers("primeintellect/wordle")`.
# The share of the letter goes from 0.23 to 1.00, with each of the seeds 1, 2 and 3.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env words = verifiers("word_lists", args = { alphabet = "e" }, weights = { brief = 0.05 })
  |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = words
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(5e-4)
  steps     = 25
}

# `rlc test` runs these.
test the_second_word_counts {
  env    = words
  expect = [
    reward("eel", "eee") > reward("eel", "eel"),
    reward("eee", "moon") < reward("moon", "eee"),
    reward("eel", "e") < 0.1,
    reward("eel", " EEE ") == reward("eel", "eee"),
    turns("eel", "eee") == 2,
    end("eel") == unfinished,
    contains(transcript("eel", "eee"), "Another one, full of e"),
  ]
}

test the_plan {
  expect = [
    main.steps == 25,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 8,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.0005,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.words.args.args.alphabet == "e",
    main.envs.words.args.weights.brief == 0.05,
    main.envs.words.rollouts.max_turns == 2,
  ]
}
