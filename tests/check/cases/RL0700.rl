model policy {
  base      = "tiny"
  lora_rank = 8
}

env bought  = openreward("Test/Shop") |> mcp_tools("http://127.0.0.1:8000/mcp")
env solved  = problems(countdown, grader = countdown) |> mcp_tools("python calculator.py") |> solver_judge()

train main {
  model     = policy
  env       = bought + solved
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
