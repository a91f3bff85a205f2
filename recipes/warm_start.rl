# A job of three stages: imitate the game's oracle, reinforce, evaluate. The weights flow from stage
# to stage; Adam starts afresh in each.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

sft warmup {
  model     = policy
  data      = demonstrations(guess, n = 256)  # played by the game's own oracle
  batch     = 32
  optimizer = adam(1e-3, schedule = linear(warmup = 2))
  epochs    = 2
}

train main {
  model     = warmup
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(3e-4)
  steps     = 20
}

eval heldout {
  model   = main
  env     = guess
  tasks   = 32
  samples = 4
  metrics = [mean_reward(), pass_at(1), pass_at(4)]
  first   = true  # before the first step as well, to compare
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
    warmup.steps == 16,
    warmup.epochs == 2,
    warmup.batch == 32,
    warmup.data.env.id == "game:GuessTheNumber-v0-easy",
    warmup.data.count == 256,
    warmup.optimizer.learning_rate == 0.001,
    warmup.optimizer.schedule.warmup == 2,
    warmup.model.base == "tiny",
    warmup.model.lora_rank == 8,
    main.steps == 20,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rloo",
    main.optimizer.learning_rate == 0.0003,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    heldout.tasks == 32,
    heldout.samples == 4,
    warmup.optimizer.schedule.kind == "linear",
    heldout.first == true,
  ]
}
