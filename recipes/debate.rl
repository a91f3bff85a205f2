# A debate (arXiv 1805.00899) as a game of three seats: two debaters argue for one answer each, and a
# judge who knows the question alone says which is right. Each role has an adapter of its own, and
# is trained in its own stage while the other stays as it is.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env debate = python_game(
  "debate:Debate",
  args = { questions = "data/debate.jsonl" },
  seats = ["debater", "debater", "judge"],
)
  |> chat(history = sampled)  # who moves twice sees what it thought
  |> rollouts(max_turns = 2)  # moves of one seat

train judge {
  model     = policy
  env       = debate |> play(against = policy, seat = "judge")  # paid for being right
  batch     = groups(32, group_size = 8)
  sampling  = sample(max_tokens = 256)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}

train debaters = judge {
  env       = debate |> play(against = judge, seat = "debater")  # paid for convincing that judge
  advantage = rae()
}

eval swayed {
  model   = debaters
  env     = debate |> play(against = judge, seat = "debater")
  tasks   = 64
  metrics = [win_rate(), mean_reward()]
  first   = true
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    judge.steps == 50,
    judge.batch.count == 32,
    judge.batch.size == 8,
    judge.sampling.max_tokens == 256,
    judge.loss.name == "importance_sampling",
    judge.advantage.name == "grpo",
    judge.advantage.args.scope == "role",
    judge.optimizer.learning_rate == 4e-5,
    judge.model.base == "Qwen/Qwen3.5-4B",
    judge.model.lora_rank == 32,
    judge.envs.debate.args.args.questions == "data/debate.jsonl",
    judge.envs.debate.rollouts.max_turns == 2,
    debaters.steps == 50,
    debaters.batch.count == 32,
    debaters.batch.size == 8,
    debaters.sampling.max_tokens == 256,
    debaters.loss.name == "importance_sampling",
    debaters.advantage.name == "rae",
    debaters.optimizer.learning_rate == 4e-5,
    debaters.model.base == "Qwen/Qwen3.5-4B",
    debaters.model.lora_rank == 32,
    debaters.envs.debate.args.args.questions == "data/debate.jsonl",
    debaters.envs.debate.rollouts.max_turns == 2,
  ]
}

test what_it_plays {
  expect = [
    judge.envs.debate.id == "debate:Debate",
    judge.envs.debate.rollouts.group == 8,
    judge.envs.debate.rollouts.max_tokens == 256,
    judge.envs.debate.play.opponent.model.base == "Qwen/Qwen3.5-4B",
    judge.envs.debate.play.opponent.model.lora_rank == 32,
    judge.envs.debate.play.seat == "judge",
    debaters.envs.debate.id == "debate:Debate",
    swayed.tasks == 64,
    swayed.first == true,
  ]
}
