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
