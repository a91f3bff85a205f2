model policy {
  base      = "tiny"
  lora_rank = 8
}

env upside = problems(countdown, grader = countdown, samples = 1_000)
  |> curriculum(hopeless = 100%, solved = 0%)
env always = problems(countdown, grader = countdown, samples = 1_000) |> curriculum(explore = 100%)

train main {
  model     = policy
  env       = upside
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = always
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
