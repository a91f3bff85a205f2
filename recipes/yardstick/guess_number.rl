# A number from 0 to 1,024 in ten guesses: tinker-cookbook's `guess_number`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env guess = cookbook(
  "tinker_cookbook.recipes.multiplayer_rl.guess_number.env:GuessNumberDatasetBuilder",
  args = { batch_size = 32 },
)

train main {
  model     = policy
  env       = guess
  batch     = groups(32, group_size = 8)
  sampling  = sample(max_tokens = 64, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(3e-5)
  steps     = 28  # the 921 numbers once
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test guesses_are_answered {
  env    = guess
  expect = [
    contains(prompt, "between 0 and 1024"),
    contains(transcript("Guess: 0", "Guess: 1024"), "low"),
    end("Guess: 0") == unfinished,
  ]
}

test the_plan {
  expect = [
    main.steps == 28,
    main.batch.count == 32,
    main.batch.size == 8,
    main.sampling.max_tokens == 64,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 3e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.guess.args.args.batch_size == 32,
    main.save.every == 20,
  ]
}
