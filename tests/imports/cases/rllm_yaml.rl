# An rLLM job on Tinker (unified options), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - --env: the evaluation plays the same tasks, unless you change `test_tasks`
#   - trainer.project_name = countdown: names a W&B run, and there is none
#   - hydra.run.dir = outputs: a run writes to a folder of its own (`rlc run --run-dir`)

model policy {
  base          = "Qwen/Qwen3-8B"
  lora_rank     = 32  # the trainer's default
  train_unembed = false
}

env tasks = problems(countdown, grader = countdown)

train main {
  model     = policy
  env       = tasks
  batch     = groups(32, group_size = 8)  # data.train_batch_size: the trainer's default
  # rollout.train.temperature: the trainer's default; not 8192: the longest prompt leaves that of
  # training.max_length = 8192
  sampling  = sample(max_tokens = 4096, temperature = 1.0, max_prompt_tokens = 4096)
  advantage = returns() |> baseline(leave_one_out, over = group, singleton = drop)
  loss      = importance_sampling()  # the trainer's default
  aggregate = token_mean()
  optimizer = adam(1e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  # the original takes 2 epochs of tasks that are not counted here; choose how long
  steps     = 100
  save      = every(20)           # the trainer's default; rlc keeps the newest 3
  on_error  = retry(2) then stop  # 3 attempts in all; the trainer's default
  track     = [tensorboard()]
}

env test_tasks = problems(countdown, grader = countdown)

eval heldout {
  model   = main
  env     = test_tasks
  tasks   = 64
  samples = 1  # the trainer's default
  metrics = [pass_at(1)]
  every   = 5  # the trainer's default
}
