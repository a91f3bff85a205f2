# Its own teacher, once it has seen a demonstration: tinker-cookbook's `sdft` (arXiv 2601.19897).

model policy {
  base      = "Qwen/Qwen3.6-35B-A3B"  # "Qwen/Qwen3.5-35B-A3B" there, which is retired
  lora_rank = 64
}

train main {
  model     = policy
  env       = rows("hub:tangqiaoyu/ToolAlpaca", prompt = "instruction")
  teacher   = forward_kl(policy, demonstration = "output", top_k = 20)
  batch     = groups(128, group_size = 1)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  loss      = cross_entropy()
  optimizer = adam(5e-4)
  steps     = 28
  save      = every(20, ttl = 7d)
}
