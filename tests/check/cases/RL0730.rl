model policy { base = "Qwen/Qwen3.5-9B" }
model large { base = "openai/gpt-oss-20b" }
preference align {
  model     = policy
  data      = pairs("data/pairs.jsonl")
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
  reference = large
}
