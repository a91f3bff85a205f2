# Two solvers and a judge, small enough for the model that comes along: spell a word backwards, and
# say who did. First the form of both answers is imitated, without much skill; then all three are
# trained, each against its like: in about a minute the judge's picks go from 0.1 right to 0.9.

model policy {
  base      = "tiny"
  lora_rank = 16
}

# The reward is for what stands in \boxed{}, which neither prompt says: the instruction must.
env duel = gem("rg:spell_backward")
  |> chat(instruction = "Put your answer inside \\boxed{}.")
  |> solver_judge(
    solvers = 2,
    solver_prompt = "data/spell_solver.j2",
    judge_prompt = "data/spell_judge.j2",
  )

sft form {
  model     = policy
  data      = rows("data/spell_duel.jsonl")
  batch     = 32
  optimizer = adam(1e-3)
  steps     = 12
}

train main {
  model     = form
  env       = duel
  batch     = groups(12, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)  # solvers against solvers, judges against judges
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 30
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    form.steps == 12,
    form.batch == 32,
    form.data.path == "data/spell_duel.jsonl",
    form.optimizer.learning_rate == 0.001,
    form.model.base == "tiny",
    form.model.lora_rank == 16,
    main.steps == 30,
    main.batch.count == 12,
    main.batch.size == 4,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.advantage.args.scope == "role",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 16,
  ]
}

test what_it_plays {
  expect = [
    main.envs.duel.id == "rg:spell_backward",
    main.envs.duel.wrappers.solver_judge.args.solvers == 2,
    main.envs.duel.wrappers.solver_judge.args.solver_prompt == "data/spell_solver.j2",
    main.envs.duel.wrappers.solver_judge.args.judge_prompt == "data/spell_judge.j2",
    main.envs.duel.rollouts.group == 4,
    main.envs.duel.rollouts.max_tokens == 16,
  ]
}
