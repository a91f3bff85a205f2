# An environment that computes a lot, in eight processes, with a deadline for each of its steps.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env tiles = gem("game:Game2048-v0-easy")
  |> chat()
  |> workers(processes, count = 8)
  |> rollouts(
    max_turns = 12,
    step_timeout = 20s,
    turn_timeout = 2m,
    timeout = 10m,
    max_failures = 3,
  )

train main {
  model     = policy
  env       = tiles
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  on_error  = retry(5) then penalise(-1)
  give_up   = failures(steps = 5, share = 50%)
}
