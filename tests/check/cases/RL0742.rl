model policy {
  base = "Qwen/Qwen3.5-4B"
}
model big = policy { base = "Qwen/Qwen3.5-397B-A17B" }

env equations = gem("rg:simple_equations") |> chat(instruction = "Answer in \\boxed{}.")
env spell = gem("rg:spell_backward") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = equations + spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  loss      = importance_sampling()
  teacher   = { spell = reverse_kl(big) }
  optimizer = adam(1e-5)
  steps     = 50
}
