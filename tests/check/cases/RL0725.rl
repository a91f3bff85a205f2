model policy { base = "Qwen/Qwen3-8B" }
preference align {
  model     = policy
  data      = pairs("data/pairs.jsonl")
  loss      = dpo()
  optimizer = adam(5e-4)
  batch     = 4
  steps     = 2
}
