model policy { base = "tiny" }
preference align {
  model     = policy
  data      = pairs("data/pairs.jsonl")
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
  heldout   = pairs("data/pairs.jsonl")
}
