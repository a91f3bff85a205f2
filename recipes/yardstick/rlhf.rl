# Imitation, a model of what people prefer, reinforcement by it: tinker-cookbook's `preference.rlhf`.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 64
}

model grader = policy { lora_rank = 64 }

sft imitation {
  model     = policy
  data      = chats("hub:HuggingFaceH4/no_robots", n = 9_500, max_tokens = 16_384, too_long = drop)
  batch     = 256
  optimizer = adam(2e-4, schedule = linear())
  epochs    = 1
}

preference taste {
  model     = grader
  data      = pairs("hub:Anthropic/hh-rlhf", n = 160_800, max_tokens = 16_384, too_long = drop)
  batch     = 256
  loss      = dpo()
  optimizer = adam(1e-5, schedule = linear())
  epochs    = 1
}

judge people = rubric("Which reply would people prefer: helpful and harmless?", model = taste)

env talks = rows("hub:Anthropic/hh-rlhf", prompt = "chosen", replied = cut)

train main {
  model     = imitation
  env       = talks |> compared(people, by = pairwise)
  batch     = groups(256, group_size = 4)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 628
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    imitation.steps == 38,
    imitation.epochs == 1,
    imitation.batch == 256,
    imitation.data.path == "hub:HuggingFaceH4/no_robots",
    imitation.data.count == 9_500,
    imitation.data.max_tokens == 16_384,
    imitation.data.too_long == "drop",
    imitation.optimizer.learning_rate == 0.0002,
    imitation.model.base == "Qwen/Qwen3.5-9B-Base",
    imitation.model.lora_rank == 64,
    taste.steps == 629,
    taste.epochs == 1,
    taste.batch == 256,
    taste.loss.name == "dpo",
    taste.data.path == "hub:Anthropic/hh-rlhf",
    taste.data.count == 160_800,
    taste.data.max_tokens == 16_384,
    taste.data.too_long == "drop",
    taste.optimizer.learning_rate == 1e-5,
    taste.model.base == "Qwen/Qwen3.5-9B-Base",
    taste.model.lora_rank == 64,
    main.steps == 628,
    main.batch.count == 256,
    main.batch.size == 4,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
  ]
}

test what_it_plays {
  expect = [
    main.envs.talks.id == "hub:Anthropic/hh-rlhf",
    main.envs.talks.rollouts.group == 4,
    main.envs.talks.rollouts.temperature == 1,
    main.envs.talks.rollouts.max_tokens == 1_024,
    main.envs.talks.judging.compared.judges.people.model.model.base == "Qwen/Qwen3.5-9B-Base",
    main.envs.talks.judging.compared.judges.people.model.model.lora_rank == 64,
    main.envs.talks.judging.compared.by == "pairwise",
    imitation.optimizer.schedule.kind == "linear",
    taste.optimizer.schedule.kind == "linear",
  ]
}
