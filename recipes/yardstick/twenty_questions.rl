# Twenty questions to a model that knows the word: tinker-cookbook's `twenty_questions`.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

model answerer {
  base     = "Qwen/Qwen3.5-9B"
  renderer = qwen3_5_disable_thinking
}

env game(test: bool = false) = python_game(
  "twenty_questions:TwentyQuestions",
  args = { held_out = test },
  seats = ["player", "answerer"],
)
  |> chat()
  |> play(against = answerer, seat = "player", max_tokens = 5)

train main {
  model     = policy
  env       = game()
  batch     = groups(64, group_size = 8)
  sampling  = sample(max_tokens = 20, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(3e-5)
  steps     = 215  # the 138 words a hundred times
  save      = every(20, ttl = 7d)
}

eval unseen {
  model   = main
  env     = game(test = true)
  tasks   = 34
  samples = 32
  every   = 5
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 215,
    main.batch.count == 64,
    main.batch.size == 8,
    main.sampling.max_tokens == 20,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 3e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.game.args.args.held_out == false,
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.game.id == "twenty_questions:TwentyQuestions",
    main.envs.game.rollouts.group == 8,
    main.envs.game.rollouts.temperature == 1,
    main.envs.game.rollouts.max_tokens == 20,
    main.envs.game.play.opponent.model.base == "Qwen/Qwen3.5-9B",
    main.envs.game.play.seat == "player",
    main.envs.game.play.max_tokens == 5,
    unseen.tasks == 34,
    unseen.samples == 32,
    unseen.every == 5,
  ]
}
