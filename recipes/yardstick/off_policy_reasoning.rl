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
