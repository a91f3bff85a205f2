model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = problems(gsm8k, grader = { right = numeric  brief = 0.2 * regex(".") })

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rae() |> weighted_sum()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
