# A loss over preferences of one's own, from the names that docs/preferences.md has: DPO's margin, and a price on
# each token of the better reply that becomes less likely than it was. `rlc explain --full` prints its derivative.

model policy {
  base      = "tiny"
  lora_rank = 8
}

preference_loss kept(beta = 0.1, price = 1.0) {
  margin = chosen - chosen_ref - (rejected - rejected_ref)
  fallen = -sum(min(chosen_token - chosen_ref_token, 0)) / chosen_length
  pair   = softplus(-beta * margin) + price * fallen
}

preference align {
  model     = policy
  data      = pairs("data/spell_pairs.jsonl", split = first(80%))
  heldout   = pairs("data/spell_pairs.jsonl", split = last(20%))
  loss      = kept(price = 0.2)
  optimizer = adam(1e-3, schedule = linear())
  batch     = 16
  steps     = 16
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    align.steps == 16,
    align.batch == 16,
    align.loss.name == "kept",
    align.optimizer.learning_rate == 0.001,
  ]
}

test what_is_trained {
  expect = [
    align.data.path == "data/spell_pairs.jsonl",
    align.data.split.share == 0.8,
    align.model.base == "tiny",
    align.model.lora_rank == 8,
    align.optimizer.schedule.kind == "linear",
  ]
}
