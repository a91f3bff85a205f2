# Guessing a number, in any size, and a stage that trains on it: `import "lib/guessing.rl"`.

sampling short = sample(max_tokens = 16)  # a guess is a few tokens

# Higher or lower: from 1 to `most`, with so many guesses.
env guess(most: int(2, 1_000) = 10, guesses: int(1, 20) = 4) = gem(
  "game:GuessTheNumber-v0-easy",
  min_number = 1,
  max_number = most,
  max_turns = guesses,
)
  |> chat()

# How we train on a game. What is not a parameter is the same for all who use it; they can still
# amend it: `stage(policy, guess()) { save = every(10) }`.
train stage(start: model, game: env, rate: float(above = 0) = 3e-4, groups_a_step: int = 16) {
  model     = start
  env       = game
  batch     = groups(groups_a_step, group_size = 8)
  sampling  = short
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(rate)
  steps     = 25
}
