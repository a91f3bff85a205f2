model policy {
  base = "Qwen/Qwen3-8B"
}
model other { base = "openai/gpt-oss-20b" }

env equations = gem("rg:simple_equations") |> chat(instruction = "Answer in \\boxed{}.")

sft round1 {
  model     = policy
  data      = samples(other, env = equations, n = 100, top_k = 20)
  batch     = 20
  optimizer = adam(1e-4)
  steps     = 5
}
