# An rLLM job on Tinker (unified options), imported with `rlc import`.

model policy {
  # in place of "Qwen/Qwen3-4B-Instruct-2507", which the hosted service no longer trains (since
  # 2026-06-12)
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32  # the trainer's default
}

# the tasks and their two players stand in the script's Python code, two solvers in it
env tasks = problems(countdown_tasks, split = "train", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

train main {
  model     = policy
  env       = tasks
  batch     = groups(32, group_size = 4)
  # rollout.train.temperature: the trainer's default
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_prompt_tokens = 4096)
  # the trainer's default; the judges of one task saw different solutions, and are compared all the
  # same
  advantage = returns()
    |> baseline(mean, over = role, singleton = drop)
    |> scale(std, over = role, ddof = 0, eps = 1e-6)
  loss      = ppo(clip_low = 0.8, clip_high = 1.2)  # the trainer's default
  # the trainer's default
  optimizer = adam(2e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, schedule = cosine(warmup = 764))
  overlap   = asynchronous(max_staleness = 2)
  epochs    = 1
  save      = every(20)           # the trainer's default; rlc keeps the newest 3
  on_error  = retry(2) then stop  # 3 attempts in all; the trainer's default
}

env test_tasks = problems(countdown_tasks, split = "test", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

eval heldout {
  model   = main
  env     = test_tasks
  tasks   = 1024
  samples = 4
  metrics = [pass_at(1), any_at(4)]
  # this plays more episodes than the training: raise it to save them
  every   = 10
}
