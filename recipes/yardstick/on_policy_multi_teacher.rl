# Two teachers, one for each kind of prompt: tinker-cookbook's `on_policy_multi_teacher`.

model student {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 128
}

model mathematician {
  base = "Qwen/Qwen3.8-27B"
}  # "Qwen/Qwen3.6-27B" there, which is retired

model assistant {
  base = "Qwen/Qwen3.5-397B-A17B"
}

env maths = rows("hub:zwhe99/DeepMath-103K", prompt = "question")
env talks = rows("hub:allenai/tulu-3-sft-mixture", prompt = "messages", replied = cut)

train main {
  model     = student
  env       = maths + talks
  teacher   = { maths = reverse_kl(mathematician, coef = 1.0), talks = reverse_kl(assistant) }
  batch     = groups(1024, group_size = 4)
  sampling  = sample(max_tokens = 4096, temperature = 1.0)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 201
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 201,
    main.batch.count == 1_024,
    main.batch.size == 4,
    main.sampling.max_tokens == 4_096,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "none",
    main.teacher.maths.model.model.base == "Qwen/Qwen3.8-27B",
    main.teacher.maths.coef == 1,
    main.teacher.talks.model.model.base == "Qwen/Qwen3.5-397B-A17B",
    main.optimizer.learning_rate == 0.0001,
    main.model.base == "Qwen/Qwen3.5-9B",
    main.model.lora_rank == 128,
    main.envs.maths.args.prompt == "question",
    main.envs.maths.reward.reduce == "turns",
    main.envs.talks.args.prompt == "messages",
    main.envs.talks.args.replied == "cut",
    main.envs.talks.reward.reduce == "turns",
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.maths.id == "hub:zwhe99/DeepMath-103K",
    main.envs.maths.rollouts.group == 4,
    main.envs.maths.rollouts.temperature == 1,
    main.envs.maths.rollouts.max_tokens == 4_096,
    main.envs.talks.id == "hub:allenai/tulu-3-sft-mixture",
    main.envs.talks.rollouts.group == 4,
    main.envs.talks.rollouts.temperature == 1,
  ]
}
