model policy {
  base = "Qwen/Qwen3-8B"
}

env board = gem("game:Sokoban-v0-easy") |> template("lib/static.j2")
env sums  = problems(countdown, grader = countdown)
  |> solver_judge(judge_prompt = "lib/blind.j2")

train main {
  model     = policy
  env       = board + sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
