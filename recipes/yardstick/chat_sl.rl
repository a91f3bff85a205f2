# Supervised training on chats: tinker-cookbook's `chat_sl`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 64
}

sft main {
  model     = policy
  data      = chats("hub:HuggingFaceH4/no_robots", n = 9_500, max_tokens = 16_384, too_long = drop)
  heldout   = chats(
    "hub:HuggingFaceH4/no_robots",
    split = "test",
    max_tokens = 16_384,
    too_long = drop,
  )
  every     = 20
  batch     = 64
  optimizer = adam(5e-4, schedule = linear())
  epochs    = 1
  save      = every(20)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 149,
    main.epochs == 1,
    main.batch == 64,
    main.optimizer.learning_rate == 0.0005,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "hub:HuggingFaceH4/no_robots",
    main.data.count == 9_500,
    main.data.max_tokens == 16_384,
    main.data.too_long == "drop",
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 64,
    main.every == 20,
    main.optimizer.schedule.kind == "linear",
  ]
}
