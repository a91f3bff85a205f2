model policy { base = "tiny" }
model large { base = "Qwen/Qwen3-8B" }
preference align {
  model     = policy
  data      = pairs("data/pairs.jsonl")
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
  reference = large
}
