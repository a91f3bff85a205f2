# How probable is yes, without a word of thought: tinker-cookbook's `decisions.forecasting`, with its
# values. The reply is one of two, and Brier's score of their probabilities is what is learnt.

model policy {
  base      = "Qwen/Qwen3.8-27B"
  lora_rank = 32
  renderer  = qwen3_8_low_reasoning
}

preference main {
  model     = policy
  data      = pairs("markets.jsonl", split = first(75%))
  heldout   = pairs("markets.jsonl", split = last(25%))
  batch     = 32
  loss      = brier()
  optimizer = adam(1e-4)
  steps     = 32  # 1,024 markets once
  every     = 16
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 32,
    main.batch == 32,
    main.loss.name == "brier",
    main.every == 16,
    main.optimizer.learning_rate == 0.0001,
  ]
}

test what_is_trained {
  expect = [
    main.data.path == "markets.jsonl",
    main.data.split.share == 0.75,
    main.model.base == "Qwen/Qwen3.8-27B",
    main.model.lora_rank == 32,
  ]
}
