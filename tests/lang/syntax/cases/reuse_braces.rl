# Braces that are missing after parameters, and in an amendment.
env guess(most: int = 10) = gem("game:A", max_number = most)

train stage(start: model, game: env)
  model = start
  env   = game
}

train easy = stage(policy, guess())
  steps                   = 50
  optimizer.learning_rate = 1e-4
}

train hard = stage(easy, guess(most = 50)) {
  steps = 100

eval after { model = hard  env = guess() }
