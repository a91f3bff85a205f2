model policy {
  base = "Qwen/Qwen3.5-4B"
}

env equations = gem("rg:simple_equations") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = equations
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  loss      = importance_sampling()
  teacher   = reverse_kl(policy, system = "data/empty.md")
  optimizer = adam(1e-5)
  steps     = 50
}
