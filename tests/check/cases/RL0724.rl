model policy { base = "tiny" }
model other { base = "tiny" }
preference align {
  model     = policy
  data      = pairs("data/pairs.jsonl")
  loss      = dpo(beta = 20)
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
preference second {
  model     = other
  data      = pairs("data/pairs.jsonl")
  loss      = simpo(beta = 2, gamma = 30)
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
