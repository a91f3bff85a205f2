# A student graded token by token by its teacher: tinker-cookbook's `on_policy_distillation`.

model student {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 128
  renderer  = qwen3_5
}

model teacher {
  base = "Qwen/Qwen3.5-9B"
}

sft reasoning {
  model     = student
  data      = chats(
    "hub:open-thoughts/OpenThoughts3-1.2M",
    n = 384_000,
    max_tokens = 16_384,
    too_long = drop,
  )
  batch     = 128
  optimizer = adam(1e-3, schedule = linear())
  epochs    = 1
  save      = every(50)
}

train main {
  model     = reasoning
  env       = rows("hub:zwhe99/DeepMath-103K", prompt = "question")
  teacher   = reverse_kl(teacher, coef = 1.0)
  batch     = groups(512, group_size = 4)
  sampling  = sample(max_tokens = 16_384, temperature = 1.0)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 202  # 103,022 problems, each once
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    reasoning.steps == 3_000,
    reasoning.epochs == 1,
    reasoning.batch == 128,
    reasoning.data.path == "hub:open-thoughts/OpenThoughts3-1.2M",
    reasoning.data.count == 384_000,
    reasoning.data.max_tokens == 16_384,
    reasoning.data.too_long == "drop",
    reasoning.optimizer.learning_rate == 0.001,
    reasoning.model.base == "Qwen/Qwen3.5-9B-Base",
    reasoning.model.lora_rank == 128,
    reasoning.save.every == 50,
    main.steps == 202,
    main.batch.count == 512,
    main.batch.size == 4,
    main.sampling.max_tokens == 16_384,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "none",
    main.optimizer.learning_rate == 0.0001,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 128,
    main.envs.DeepMath_103K.args.prompt == "question",
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.DeepMath_103K.id == "hub:zwhe99/DeepMath-103K",
    main.envs.DeepMath_103K.rollouts.group == 4,
    main.envs.DeepMath_103K.rollouts.temperature == 1,
    main.envs.DeepMath_103K.rollouts.max_tokens == 16_384,
    reasoning.optimizer.schedule.kind == "linear",
  ]
}
