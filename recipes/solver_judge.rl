# Two solvers and a judge on Countdown: reach a number with three or four others. One model plays all
# three, and the judge is paid for picking a right solution.
#
# From rLLM's guide to Tinker (train_solver_judge_flow_tinker), with the values of its script.

model policy {
  # "Qwen/Qwen3-4B-Instruct-2507" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

# Problems are made from a seed as they are needed; no split shares one with another. As many as the
# published data set has. `stage2` and `stage3` are further splits.
env duel = problems(
  countdown,
  split = "train",
  grader = countdown,
  samples = 489_340,
  format_coef = 0.0,  # right or wrong, nothing for the form
)
  |> solver_judge(solvers = 2)

env duel_test = problems(countdown, split = "test", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

# Before any training: of eight attempts, how good is one, and how good the best?
eval untrained {
  model    = policy
  env      = duel_test
  tasks    = 1024
  samples  = 8
  sampling = sample(max_tokens = 1024, max_prompt_tokens = 2048)
  metrics  = [pass_at(1), pass_at(8)]
}

train main {
  model     = policy
  env       = duel
  batch     = groups(32, group_size = 4)  # the guide also shows 8
  # The script samples at 0.6, which its own trainer refuses: it asserts 1.
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_prompt_tokens = 2048)
  # Solvers against the solvers of their task, judges against its judges. The judges saw different
  # solutions and are compared all the same. The script turns the scale off, which its trainer never
  # reads: it always divides.
  advantage = rllm.legacy_grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  epochs    = 10  # the guide also shows 20
  save      = every(20)
  on_error  = retry(2) then stop
  track     = [wandb("solver-judge-tinker", run = "countdown-grpo")]
}

eval heldout {
  model   = main
  env     = duel_test
  tasks   = 1024
  samples = 1
  metrics = [pass_at(1)]
  every   = 20
  first   = true
}
