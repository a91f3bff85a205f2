# Supervised training on No Robots: tinker-cookbook's `sl_basic`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

sft main {
  model     = policy
  data      = chats("hub:HuggingFaceH4/no_robots", n = 9_500, max_tokens = 32_768, too_long = drop)
  heldout   = chats(
    "hub:HuggingFaceH4/no_robots",
    split = "test",
    max_tokens = 32_768,
    too_long = drop,
  )
  every     = 8
  batch     = 128
  optimizer = adam(2e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, schedule = linear())
  epochs    = 1
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 75,
    main.epochs == 1,
    main.batch == 128,
    main.optimizer.learning_rate == 0.0002,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "hub:HuggingFaceH4/no_robots",
    main.data.count == 9_500,
    main.data.max_tokens == 32_768,
    main.data.too_long == "drop",
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.every == 8,
    main.optimizer.schedule.kind == "linear",
  ]
}
