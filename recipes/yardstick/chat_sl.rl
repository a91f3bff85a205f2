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
