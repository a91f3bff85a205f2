model policy {
  base  = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16"
  price = { prefill = $0.2  as_of = "2026-07-20" }
}

env guess = gem("rg:chain_sum") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
  budget    = $5_000
}
