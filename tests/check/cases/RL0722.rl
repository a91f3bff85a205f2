model policy { base = "tiny" }
preference align {
  model     = policy
  data      = labelled("data/rated.jsonl", split = first(80%))
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
  heldout   = labelled("data/rated.jsonl", split = last(20%))
}
