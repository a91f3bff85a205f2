# Reasoning, imitated from OpenThoughts3: tinker-cookbook's `off_policy_reasoning`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 128
  renderer  = qwen3_5
}

sft main {
  model     = policy
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

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 3_000,
    main.epochs == 1,
    main.batch == 128,
    main.optimizer.learning_rate == 0.001,
    main.save.every == 50,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "hub:open-thoughts/OpenThoughts3-1.2M",
    main.data.count == 384_000,
    main.data.max_tokens == 16_384,
    main.data.too_long == "drop",
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 128,
    main.optimizer.schedule.kind == "linear",
  ]
}
