# The first recipe to run: a tiny chat model learns to guess a number from "higher" and "lower".
# Everything happens on this machine, without a key and without a download.
#
#     rlc run recipes/quickstart.rl

param learning_rate: float = 3e-4  # rlc run … --set learning_rate=1e-3

model policy {
  base      = "tiny"  # 0.8M parameters, comes with rlc
  lora_rank = 8
}

# A game of several turns. chat() hands the observations over as a chat: each turn extends the
# tokens before it, so a whole game is one training sequence.
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)  # 16 numbers to guess, each guessed at 8 times
  sampling  = sample(max_tokens = 16)
  advantage = grpo()  # better or worse than the other 7 at that number
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 50
  save      = every(25)
}

# `rlc test` runs these.
test guesses_are_answered {
  env    = guess
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
    main.steps == 50,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.0003,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.save.every == 25,
    main.envs.guess.wrappers.chat.args.instruction == "",
  ]
}
