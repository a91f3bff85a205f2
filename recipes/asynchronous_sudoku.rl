# Multi-turn Sudoku that never waits: while a step trains, the next one is already being played, with
# weights that are one step older. GEM's guide ends with this wish: "we can optimize it via prefix
# sharing, async sample/learn".
#
#     rlc explain recipes/asynchronous_sudoku.rl --latency sampling=90s,training=40s
#     rlc run recipes/asynchronous_sudoku.rl --rehearse

model policy {
  base      = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
  renderer  = nemotron3_preserve_thinking
  lora_rank = 32
}

# A whole game is one sequence: each prompt begins with the tokens of the turns before.
env sudoku = gem("game:Sudoku-v0-easy")
  |> chat(instruction = "Think briefly, then put your move in \\boxed{}.")

train main {
  model     = policy
  env       = sudoku
  batch     = turns(256, parallel = 64)  # games until 256 turns, then a random 256 of them
  sampling  = sample(max_tokens = 512)
  advantage = rebn(gamma = 0.9)
  loss      = cispo()  # clips the weight of a token whose ratio has grown
  optimizer = adam(4e-5)
  steps     = 100
  overlap   = asynchronous(max_staleness = 1)  # 0 would be `synchronous()`
  save      = every(20)
  on_error  = retry(2) then drop
  budget    = $200
}

# `rlc test` runs these.
test moves_are_in_a_box {
  env    = sudoku
  expect = [
    contains(prompt, "4x4 grid"),
    reward("1 1 1") == -0.1,
    reward("") == -0.1,
    end("") == done,
  ]
}

test the_plan {
  expect = [
    main.steps == 100,
    main.batch.count == 256,
    main.batch.parallel == 64,
    main.sampling.max_tokens == 512,
    main.loss.name == "cispo",
    main.advantage.name == "rebn",
    main.overlap.max_staleness == 1,
    main.advantage.args.gamma == 0.9,
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    main.model.lora_rank == 32,
    main.save.every == 20,
  ]
}
