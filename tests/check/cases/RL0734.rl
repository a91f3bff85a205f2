model policy { base = "tiny" }
preference_loss apart(beta = 0.1) {
  won  = beta * (chosen - chosen_ref - (rejected - rejected_ref))
  pair = softplus(rating_margin - won)
}
preference align {
  model     = policy
  data      = pairs("data/margins.jsonl", chosen_rating = "score_b", rejected_rating = "score_a")
  loss      = apart()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
