# all good; many good replies and few bad ones
model policy { base = "tiny" }
model other { base = "tiny" }
preference align {
  model     = policy
  data      = labelled("data/praised.jsonl")
  loss      = kto()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
preference second {
  model     = other
  data      = labelled("data/lopsided.jsonl")
  loss      = kto()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
