# From an easy game to a harder one: two stages that are the same but for what is said here. The
# game, and how we train on it, are declared with parameters in recipes/lib/guessing.rl.
#
#     rlc explain --full recipes/two_stages.rl    # where each value is from, as "argument of stage"

import "lib/guessing.rl"

model policy {
  base      = "tiny"
  lora_rank = 8
}

train easy = stage(policy, guess())  # from 1 to 10
train hard = stage(easy, guess(most = 50, guesses = 7)) {  # goes on from `easy`
  steps                   = 50
  optimizer.learning_rate = 1e-4
}

eval before_hard {
  model   = easy
  env     = guess(most = 100, guesses = 8)  # larger than either stage has seen
  samples = 4
}

eval after_hard = before_hard { model = hard }

# `rlc test` runs these.
test guesses_are_answered {
  env    = guess()
  expect = [
    contains(prompt, "between 1 and 10"),
    contains(prompt, "within 4 turns"),
    end("\\boxed{0}") == done,
    contains(transcript("\\boxed{1}", "\\boxed{10}"), "lower"),
    reward("five") == -0.1,
    reward("") == -0.1,
  ]
}

test the_plan {
  expect = [
    easy.steps == 25,
    easy.batch.count == 16,
    easy.batch.size == 8,
    easy.sampling.max_tokens == 16,
    easy.loss.name == "importance_sampling",
    easy.advantage.name == "grpo",
    easy.optimizer.learning_rate == 0.0003,
    easy.model.base == "tiny",
    easy.model.lora_rank == 8,
    easy.envs.guess.args.max_number == 10,
    easy.envs.guess.args.max_turns == 4,
    easy.envs.guess.args.min_number == 1,
    hard.steps == 50,
    before_hard.envs.guess.args.max_number == 100,
    after_hard.envs.guess.args.max_number == 100,
    hard.batch.count == 16,
    hard.batch.size == 8,
    hard.sampling.max_tokens == 16,
    hard.loss.name == "importance_sampling",
    hard.advantage.name == "grpo",
    hard.optimizer.learning_rate == 0.0001,
    hard.model.base == "tiny",
    hard.model.lora_rank == 8,
    hard.envs.guess.args.max_number == 50,
    hard.envs.guess.args.max_turns == 7,
    hard.envs.guess.args.min_number == 1,
    before_hard.samples == 4,
    after_hard.samples == 4,
  ]
}
