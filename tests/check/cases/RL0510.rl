model policy {
  base = "Qwen/Qwen3-8B"
}

env essays = rows("lib/rows.jsonl", grader = grade_with("lib/rewards.py:ton"))
env games  = python("lib/games.py:Bord")
env solved = python("json.decode:loads") |> workers(executor = "lib/games.py:executor")
env played = python("nobody_has_this_module:make")

train main {
  model     = policy
  env       = essays + games + solved + played
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
