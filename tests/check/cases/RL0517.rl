# rlc check --import
model policy {
  base = "tiny"
}

env sums = problems("lib/sums.jsonl", grader = numeric)

advantage scaled = python("lib/credit.py:scaled")

train main {
  model     = policy
  env       = sums |> curriculum(by = "lib/credit.py:hard")
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = scaled
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

train short {
  model     = policy
  env       = sums
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = python("lib/credit.py:per_group")
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

sft round2 {
  model     = main
  data      = samples(main, env = sums, n = 64, samples_per_task = 4, keep = python("lib/credit.py:rewarded"))
  optimizer = adam(1e-5)
  batch     = 8
  epochs    = 2
}
