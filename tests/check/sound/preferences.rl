# Every loss over preferences, one after the other: rows of two forms, a tie, more good replies than bad.
model policy { base = "tiny" }
preferences liked = pairs("data/liked.jsonl", split = first(80%))
preference by_dpo {
  model     = policy
  data      = liked
  heldout   = pairs("data/liked.jsonl", split = last(20%))
  every     = 1
  loss      = dpo(label_smoothing = 0.1)
  optimizer = adam(1e-5)
  batch     = 2
  steps     = 3
}
preference by_ipo = by_dpo { model = by_dpo  loss = ipo(beta = 0.5)  reference = policy }
preference by_simpo = by_dpo { model = by_ipo  loss = simpo() }
preference by_cpo = by_dpo { model = by_simpo  loss = cpo(alpha = 0.5) }
preference by_orpo = by_dpo { model = by_cpo  loss = orpo() }
preference by_brier = by_dpo { model = by_orpo  loss = brier() }
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")
preference by_itself = by_dpo {
  model   = by_orpo
  data    = preferred(by_orpo, env = spell, n = 16, samples = 8)
  heldout = preferred(policy, env = spell, n = 8)
}
preference by_kto {
  model     = by_itself
  data      = labelled("data/rated.jsonl", prompt = "asked", reply = "said", label = "fine")
  loss      = kto(undesirable = 2)
  optimizer = adam(1e-5)
  batch     = 6
  steps     = 2
}
