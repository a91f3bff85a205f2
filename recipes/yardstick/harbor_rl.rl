# Terminal-Bench in containers, with a shell: tinker-cookbook's `harbor_rl`, with its values.

model policy {
  base      = "moonshotai/Kimi-K2.6"
  lora_rank = 32
}

# Two tasks of our own; `harbor datasets download terminal-bench@2.0` has 89 more.
env tasks = harbor("../data/harbor/*", turns = 10, timeout = 2m)
  |> chat(history = sampled)  # the cookbook writes earlier turns anew: a sequence a turn
  |> rollouts(timeout = 1h, step_timeout = 15m)

train main {
  model     = policy
  env       = tasks
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 8192, temperature = 1.0, max_episode_tokens = 32_768)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 12  # the 89 tasks once
  save      = every(5, ttl = 7d)
}
