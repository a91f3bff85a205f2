# Self-play: the tiny model plays a game of words against itself, and now and then against the model
# that it began as. In half a minute on two cores it wins every match against that.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env tug = python_game("tug_of_war:TugOfWar") |> rollouts(max_turns = 2)  # two rounds

train main {
  model     = policy
  env       = tug |> play(against = self)  # the rollouts of both seats are trained on
  batch     = groups(8, group_size = 4)    # four matches about each letter
  sampling  = sample(max_tokens = 8)
  advantage = grpo(scope = role)  # who begins is compared with who began
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 10
}

eval wins {
  model   = main
  env     = tug |> play(against = policy)  # as it was before, which stays as it is
  tasks   = 16
  samples = 4
  every   = 5
  first   = true
  metrics = [win_rate()]
}

# `rlc test` runs these.
test the_rope_is_pulled {
  env    = tug |> play(against = self)
  expect = [
    reward("eee", "eee") == 0,
    reward("", "") == 0,
    turns("eee", "eee") == 2,
    end("eee", "eee") == done,
    end("eee") == unfinished,
    contains(prompt, "letter e"),
  ]
}

test the_plan {
  expect = [
    main.steps == 10,
    main.batch.count == 8,
    main.batch.size == 4,
    main.sampling.max_tokens == 8,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.advantage.args.scope == "role",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.tug.rollouts.max_turns == 2,
    wins.tasks == 16,
    wins.samples == 4,
    wins.every == 5,
    wins.first == true,
  ]
}
