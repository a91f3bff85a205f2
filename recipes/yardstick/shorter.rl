# The shorter of two replies is better: tinker-cookbook's `preference.shorter`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env who = rows("who_are_you.jsonl")
  |> compared(compare_with("shorter.py:shorter"), by = pairwise)
  |> reward(2 * total - 1 - truncated)

train main {
  model     = policy
  env       = who
  batch     = groups(32, group_size = 16)
  sampling  = sample(max_tokens = 64, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(3e-5)
  steps     = 32
  save      = every(20, ttl = 7d)
}
