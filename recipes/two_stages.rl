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
