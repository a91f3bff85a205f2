# Two solvers and a judge on Countdown, which is paid for picking a right solution: one model plays
# all three. From rLLM's guide to Tinker. `countdown` in place of `countdown_tasks` needs no hub.
model policy {
  base = "Qwen/Qwen3.5-4B"  # "Qwen/Qwen3-4B-Instruct-2507" in the guide, which is retired
}

env duel = problems(countdown_tasks, grader = countdown, format_coef = 0) |> solver_judge()
env test = problems(countdown_tasks, split = test, grader = countdown, format_coef = 0)
  |> solver_judge()

eval untrained {
  model    = policy
  env      = test
  tasks    = 1024
  samples  = 8
  sampling = sample(max_tokens = 1024, max_prompt_tokens = 2048)
  metrics  = [pass_at(1), pass_at(8)]
}

train main {
  model     = policy
  env       = duel
  batch     = groups(32, group_size = 4)  # the guide also shows 8
  sampling  = sample(max_tokens = 1024, max_prompt_tokens = 2048)
  advantage = rllm.legacy_grpo(scope = role)  # solvers against solvers, judges against judges
  loss      = importance_sampling()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  epochs    = 10  # the guide also shows 20
  save      = every(20)
  on_error  = retry(2) then stop
  track     = [wandb("solver-judge-tinker", run = "countdown-grpo")]
}

eval heldout = untrained {
  model   = main
  samples = 1
  metrics = [pass_at(1)]
  every   = 20
  first   = true
}

# `rlc test` runs these.
test a_solution_reaches_the_target {
  env    = duel
  task   = { nums = [20, 50, 4], target = 34 }
  expect = [
    reward("<answer>50 - 20 + 4</answer>") == 1,
    reward("<answer>20 + 4</answer>") == 0,
    reward("34") == 0,
    contains(prompt, "20, 50, 4"),
  ]
}

test the_plan {
  expect = [
    main.steps == 152_919,
    main.epochs == 10,
    main.batch.count == 32,
    main.batch.size == 4,
    main.sampling.max_tokens == 1_024,
    main.sampling.max_prompt_tokens == 2_048,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rllm.legacy_grpo",
    main.advantage.args.scope == "role",
    main.optimizer.learning_rate == 4e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.envs.duel.args.format_coef == 0,
    main.save.every == 20,
    untrained.tasks == 1_024,
    untrained.samples == 8,
    heldout.tasks == 1_024,
    heldout.samples == 1,
    heldout.every == 20,
    heldout.first == true,
  ]
}
