model policy { base = "tiny" }
preference align {
  model     = policy
  data      = pairs("data/margins.jsonl", margin = "gap")
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
