model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = problems(countdown, grader = countdown) |> reward(sum, low = 0, high = 1)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = gdpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
