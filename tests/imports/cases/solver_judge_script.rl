# An rLLM job on Tinker (legacy options), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - algorithm.norm_adv_by_std_in_grpo = false: stored and never read: advantages are always
#     divided by the standard deviation
#   - data.val_batch_size = 512: all tasks of the test split are evaluated, however many at once
#   - trainer.default_local_dir = /tmp/countdown-solver-judge: a run writes to a folder of its own
#     (`rlc run --run-dir`)

model policy {
  # in place of "Qwen/Qwen3-4B-Instruct-2507", which the hosted service no longer trains (since
  # 2026-06-12)
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

# the tasks and their two players stand in the script's Python code, two solvers in it
env tasks = problems(countdown_tasks, split = "train", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

train main {
  model     = policy
  env       = tasks
  batch     = groups(64, group_size = 4)
  # not 1, as in the original: sampled from another distribution than is trained, and the trainer
  # itself stops at an assertion
  sampling  = sample(max_tokens = 1024, temperature = 0.6, max_prompt_tokens = 2048)
  # the judges of one task saw different solutions, and are compared all the same
  advantage = rllm.legacy_grpo(scope = role)
  loss      = importance_sampling()  # the trainer's only one
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  epochs    = 10
  save      = every(20)           # rlc keeps the newest 3
  on_error  = retry(2) then stop  # 3 attempts in all; the trainer's default
  track     = [wandb("tinker-workflow", run = "countdown-solver-judge")]
}

env test_tasks = problems(countdown_tasks, split = "test", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

eval heldout {
  model   = main
  env     = test_tasks
  tasks   = 1024
  samples = 1  # the trainer's default
  metrics = [pass_at(1)]
  every   = 20
}
