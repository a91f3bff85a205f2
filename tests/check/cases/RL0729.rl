model policy { base = "tiny" }
preference align {
  model     = policy
  data      = labelled("data/rated.jsonl")
  loss      = kto()
  optimizer = adam(1e-4)
  batch     = 2
  steps     = 2
}
