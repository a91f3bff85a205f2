# Harbor's task folders: the model works in a shell, and the task's tests reward it.
#
#     rlc run recipes/harbor.rl                                      # needs docker or podman
#     rlc run recipes/harbor.rl --rehearse --set tasks.runtime=subprocess
#
# The stand-in `subprocess` runs commands on this machine, as you, and isolates nothing.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env tasks = harbor("data/harbor/*", turns = 8, timeout = 20s)
  |> chat(history = sampled)  # an episode is one sequence, with the thinking of all its turns
  |> rollouts(step_timeout = 5m)

train main {
  model     = policy
  env       = tasks
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
  overlap   = asynchronous(max_staleness = 1)  # the next tasks are worked on while a step trains
  on_error  = retry(1) then drop
  budget    = $40
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 50,
    main.batch.count == 2,
    main.batch.size == 8,
    main.sampling.max_tokens == 512,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.overlap.max_staleness == 1,
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.tasks.args.turns == 8,
    main.envs.tasks.args.timeout == 20s,
  ]
}

test what_it_plays {
  expect = [
    main.envs.tasks.id == "data/harbor/*",
    main.envs.tasks.max_turns == 8,
    main.envs.tasks.rollouts.group == 8,
    main.envs.tasks.rollouts.max_tokens == 512,
  ]
}
