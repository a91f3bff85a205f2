model policy {
  base      = "tiny"
  lora_rank = 8
}

env duel = problems(countdown, grader = countdown, samples = 1_000) |> solver_judge(solvers = 1)

train main {
  model     = policy
  env       = duel
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
