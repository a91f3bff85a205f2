# Preferences: pairs of replies of which one is better, learnt by DPO in about 20 seconds. A fifth of the
# pairs is held out, and says how often the better reply has become the likelier one.

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

preference align {
  model     = policy
  data      = pairs("data/spell_pairs.jsonl", split = first(80%))
  heldout   = pairs("data/spell_pairs.jsonl", split = last(20%))
  every     = 6
  loss      = dpo(beta = 0.1)
  optimizer = adam(learning_rate, schedule = linear())
  batch     = 16
  steps     = 16
}

expect align.heldout.accuracy >= 70%

# `rlc test` runs these.
test how_it_learns {
  expect = [
    align.steps == 16,
    align.batch == 16,
    align.loss.name == "dpo",
    align.loss.config.beta == 0.1,
    align.optimizer.learning_rate == 0.001,
  ]
}

test what_is_trained {
  expect = [
    align.data.path == "data/spell_pairs.jsonl",
    align.data.split.share == 0.8,
    align.model.base == "tiny",
    align.model.lora_rank == 8,
    align.every == 6,
    align.optimizer.schedule.kind == "linear",
  ]
}
