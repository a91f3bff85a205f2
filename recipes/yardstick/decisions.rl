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
