# two replies to different prompts, an unknown verdict, a reply without a prompt
model policy { base = "tiny" }
model other { base = "tiny" }
preference align {
  model     = policy
  data      = pairs("data/uncompared.jsonl")
  loss      = dpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
preference second {
  model     = other
  data      = labelled("data/unlabelled.jsonl")
  loss      = kto()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
