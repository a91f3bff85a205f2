model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = problems(countdown, grader = countdown)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = trl.gdpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  on_error  = retry(2) then penalise(-1)
}
