model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

env timed = guess |> rollouts(timeout = 1m, turn_timeout = 2m, max_failures = 8, max_turns = 50)
env tools = gem("rg:chain_sum")
  |> python_tool(timeout = 5m)
  |> concat()
  |> template(no)
  |> rollouts(max_turns = 2)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16, max_episode_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = tools
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 4_096, max_prompt_tokens = 8_000)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train third {
  model     = second
  env       = timed
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  deadlines = deadlines(step = 30s)
}
