# Multi-turn Sudoku with return batch normalisation, as in GEM (arXiv 2510.01051), on hosted Tinker.
# From GEM's guide to Tinker, low-level route, example 3.
#
#     rlc explain recipes/sudoku.rl              what it does and what it costs
#     rlc run recipes/sudoku.rl --rehearse       the same job on the tiny model, without a key

param learning_rate: float = 4e-5

model policy {
  # "Qwen/Qwen3-8B-Base" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
  renderer  = qwen3_instruct  # the chat markup of the guide's template, which this model knows
}

# Each prompt begins with the tokens that were sampled before, so an episode is one sequence: the
# guide's wish. Its own job, `concat() |> template(qwen3_game)`, writes every turn as a prompt of its
# own, and its cost grows with the square of the turns.
env sudoku = gem("game:Sudoku-v0-easy")
  |> chat(instruction = "Please reason step by step, and put your final answer within \\boxed{}.")

train main {
  model     = policy
  env       = sudoku
  # Episodes until 128 turns, then a random 128 of them. The guide's 64 at a time play some 700.
  batch     = turns(128, parallel = 16)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = rebn(gamma = 0.9)  # each turn's discounted return, over the whole batch
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 200
  save      = every(20, keep = 3, ttl = 7d)
  budget    = $200  # stops with a checkpoint before it costs more
  # track = [wandb("gem-tinker_train")] is where the guide shows its curves
}

# `rlc test` runs these.
test moves_are_in_a_box {
  env    = sudoku
  expect = [
    contains(prompt, "4x4 grid"),
    contains(prompt, "put your final answer within \\boxed{}."),
    reward("1 1 1") == -0.1,
    reward("") == -0.1,
    end("") == done,
  ]
}

test the_plan {
  expect = [
    main.steps == 200,
    main.batch.count == 128,
    main.batch.parallel == 16,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rebn",
    main.advantage.args.gamma == 0.9,
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.save.every == 20,
  ]
}
