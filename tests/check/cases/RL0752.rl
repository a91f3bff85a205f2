model policy {
  base = "Qwen/Qwen3.5-4B"
}
model big = policy { base = "Qwen/Qwen3.5-397B-A17B" }

env equations = gem("rg:simple_equations") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = equations
  batch     = groups(16, group_size = 1)
  sampling  = sample(max_tokens = 16)
  teacher   = forward_kl(big)
  loss      = ppo()
  optimizer = adam(1e-4)
  steps     = 50
}
