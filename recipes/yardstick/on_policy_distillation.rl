# A student graded token by token by its teacher: tinker-cookbook's `on_policy_distillation`.

model student {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 128
  renderer  = qwen3_5
}

model teacher {
  base = "Qwen/Qwen3.5-9B"
}

sft reasoning {
  model     = student
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

train main {
  model     = reasoning
  env       = rows("hub:zwhe99/DeepMath-103K", prompt = "question")
  teacher   = reverse_kl(teacher, coef = 1.0)
  batch     = groups(512, group_size = 4)
  sampling  = sample(max_tokens = 16_384, temperature = 1.0)
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 202  # 103,022 problems, each once
  save      = every(20, ttl = 7d)
}
