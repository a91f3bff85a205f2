# Instructions learnt by heart: tinker-cookbook's `prompt_distillation`, both of its programs.

model policy {
  base      = "Qwen/Qwen3.6-35B-A3B"
  lora_rank = 32
}

model instructed {
  base     = "Qwen/Qwen3.6-35B-A3B"
  renderer = qwen3_5_disable_thinking
}

env texts = rows("languages.jsonl")
  |> chat(
    system = "Reply with the code of the text's language and nothing else: ar de el en es fr hi ru tr ur vi zh, or ot for any other.",
  )

sft main {
  model     = policy
  data      = samples(
    instructed,
    env = texts,
    n = 2_100,
    keep = all,
    sampling = sample(max_tokens = 1000, temperature = 0.15),
    without = system,
  )
  batch     = 128
  optimizer = adam(1e-4, schedule = linear())
  epochs    = 4
  save      = every(20)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 66,
    main.epochs == 4,
    main.batch == 128,
    main.optimizer.learning_rate == 0.0001,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.data.env.id == "languages.jsonl",
    main.data.env.rollouts.temperature == 0.15,
    main.data.env.rollouts.max_tokens == 1_000,
    main.data.count == 2_100,
    main.data.model.model.base == "Qwen/Qwen3.6-35B-A3B",
    main.data.keep.kind == "all",
    main.data.sampling.max_tokens == 1_000,
    main.data.sampling.temperature == 0.15,
    main.data.without == "system",
    main.model.base == "Qwen/Qwen3.6-35B-A3B",
    main.model.lora_rank == 32,
    main.optimizer.schedule.kind == "linear",
  ]
}
