# PROJECT_NAME: a model learns which of two replies is better (DPO). Takes about ten seconds on two cores.

model policy {
  base      = "tiny"  # included in rlc, 0.8M parameters; `rlc catalog model` lists others
  lora_rank = 8
}

preference main {
  model     = policy
  data      = pairs("data/pairs.jsonl", split = first(80%))
  heldout   = pairs("data/pairs.jsonl", split = last(20%))
  every     = 8
  loss      = dpo(beta = 0.1)
  optimizer = adam(1e-3, schedule = linear())
  batch     = 8
  steps     = 24
}

expect main.heldout.accuracy >= 70%

# `rlc test` runs these.
test the_loss_falls {
  rehearse = main
  steps    = 5
  expect   = [main.loss.last < main.loss.first]
}

test the_run_stays_small {
  expect = [job.cost.high == $0, main.loss.name == "dpo", main.loss.config.beta == 0.1]
}
