# Supervised training on Tülu 3's mixture: tinker-cookbook's `chat_sl` with `dataset=tulu3`.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 64
}

sft main {
  model     = policy
  # 939,343 chats, less the 1,024 that the cookbook tests with
  data      = chats(
    "hub:allenai/tulu-3-sft-mixture",
    n = 938_319,
    train_on = last,
    max_tokens = 16_384,
    too_long = drop,
  )
  batch     = 512
  optimizer = adam(5e-4, schedule = linear())
  epochs    = 1
  save      = every(500)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 1_833,
    main.epochs == 1,
    main.batch == 512,
    main.optimizer.learning_rate == 0.0005,
    main.save.every == 500,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "hub:allenai/tulu-3-sft-mixture",
    main.data.count == 938_319,
    main.data.max_tokens == 16_384,
    main.data.too_long == "drop",
    main.data.train_on == "last",
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 64,
    main.optimizer.schedule.kind == "linear",
  ]
}
