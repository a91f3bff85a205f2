# A sweep: three learning rates and two advantage schemes, each with two seeds, compared by tasks that
# the training never sees. `rlc sweep recipes/learning_rates.rl` runs it, `rlc run` runs the job alone.

param learning_rate: float = 3e-4

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Answer in \\boxed{}.")

advantage scheme = grpo()

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = scheme
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 12
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 32
  samples = 4
  every   = 4
  metrics = [pass_at(1), mean_reward()]
}

sweep rates {
  of     = main
  over   = { learning_rate = [1e-4, 3e-4, 1e-3], scheme = [grpo(), rloo()] }
  seeds  = 2
  metric = heldout.pass_at_1
}
