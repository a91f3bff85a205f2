# Preferences of people on helpfulness and harm: tinker-cookbook's `preference.dpo`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

preference main {
  model     = policy
  data      = pairs("hub:Anthropic/hh-rlhf", n = 160_800, max_tokens = 8192, too_long = drop)
  heldout   = pairs(
    "hub:Anthropic/hh-rlhf",
    split = test,
    n = 1024,
    max_tokens = 8192,
    too_long = drop,
  )
  batch     = 256
  loss      = dpo(beta = 0.1)
  optimizer = adam(1e-5, schedule = linear())
  epochs    = 1
  every     = 10
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 629,
    main.epochs == 1,
    main.batch == 256,
    main.loss.name == "dpo",
    main.loss.config.beta == 0.1,
    main.optimizer.learning_rate == 1e-5,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "hub:Anthropic/hh-rlhf",
    main.data.count == 160_800,
    main.data.max_tokens == 8_192,
    main.data.too_long == "drop",
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.every == 10,
    main.optimizer.schedule.kind == "linear",
  ]
}
