# Tic-tac-toe against itself: tinker-cookbook's `text_arena`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env game = textarena("TicTacToe-v0", illegal = -2) |> chat()

train main {
  model     = policy
  env       = game |> play(against = self)
  batch     = groups(256, group_size = 1)  # matches, of two seats each
  sampling  = sample(max_tokens = 64, temperature = 1.0, stop = "]\n")
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(3e-5)
  steps     = 80
  save      = every(20, ttl = 7d)
}

eval wins {
  model   = main
  env     = game |> play(against = policy)  # the base model; or random(), or perfect()
  tasks   = 128
  every   = 5
  first   = true
  metrics = [win_rate(), mean_reward()]
}

# `rlc test` runs these.
test an_illegal_move_loses {
  env    = game |> play(against = self)
  expect = [reward("x") == -2, contains(prompt, "Tic Tac Toe"), end("x") == done]
}

test the_plan {
  expect = [
    main.steps == 80,
    main.batch.count == 256,
    main.batch.size == 1,
    main.sampling.max_tokens == 64,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 3e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.game.args.illegal == -2,
    main.save.every == 20,
    wins.tasks == 128,
    wins.every == 5,
    wins.first == true,
  ]
}
