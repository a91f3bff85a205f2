# Rates and ranks of `chat_sl` side by side: tinker-cookbook's `chat_sl.sweep`, with its grid.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
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
  batch     = 256
  optimizer = adam(1e-4, schedule = linear())
  steps     = 390  # 100,000 chats
  save      = every(20)
}

sweep rates {
  of     = main
  over   = {
    policy.lora_rank             = [32, 128]
    main.optimizer.learning_rate = [1e-5, 3e-5, 1e-4, 3e-4, 5e-4, 1e-3]
  }
  metric = main.heldout.loss
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 390,
    main.batch == 256,
    main.optimizer.learning_rate == 0.0001,
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
    main.model.lora_rank == 32,
    main.optimizer.schedule.kind == "linear",
  ]
}
