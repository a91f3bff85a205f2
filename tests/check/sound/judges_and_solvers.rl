# Three solvers and a judge on one played question each, compared by role; a role's raw return
# where it is alone.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env duel = gem("rg:spell_backward")
  |> chat(instruction = "Answer in \\boxed{}.")
  |> solver_judge(solvers = 3, judge_prompt = "data/judge.j2")

train main {
  model     = policy
  env       = duel
  batch     = groups(9, group_size = 3)
  sampling  = sample(max_tokens = 16)
  advantage = rllm.grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval picks {
  model   = main
  env     = duel
  tasks   = 17
  samples = 2
  metrics = [mean_reward(), pass_at(1), any_at(2)]
  every   = 10
  first   = true
}
