# An rLLM job on Tinker (legacy options), imported with `rlc import`.

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 16
}

# the tasks and their two players stand in the script's Python code, two solvers in it
env tasks = problems(countdown_tasks, split = "train", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

train main {
  model     = policy
  env       = tasks
  batch     = groups(32, group_size = 8)
  # data.max_response_length, sampling.temperature, data.max_prompt_length: the trainer's default
  sampling  = sample(max_tokens = 2048, temperature = 1.0, max_prompt_tokens = 2048)
  # the trainer's default; the judges of one task saw different solutions, and are compared all the
  # same
  advantage = rllm.legacy_grpo(scope = role)
  loss      = importance_sampling()  # the trainer's only one
  optimizer = adam(2e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)  # the trainer's default
  epochs    = 20
  save      = every(20)           # the trainer's default; rlc keeps the newest 3
  on_error  = retry(2) then stop  # 3 attempts in all; the trainer's default
  track     = [wandb("solver-judge-tinker", run = "countdown-grpo-qwen3-8b")]
}

env test_tasks = problems(countdown_tasks, split = "test", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

eval heldout {
  model   = main
  env     = test_tasks
  tasks   = 1024
  samples = 1  # the trainer's default
  metrics = [pass_at(1)]
  every   = 5     # the trainer's default
  first   = true  # the trainer's default
}
