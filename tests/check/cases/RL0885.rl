# rlc check recipe.rl
model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 8
}
param rate: float = 1e-4
env sums = gem("rg:simple_equations") |> template(qwen3_general)
env others = gem("rg:decimal_arithmetic") |> template(qwen3_general)
train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  optimizer = adam(rate)
  loss      = importance_sampling()
  advantage = grpo()
  steps     = 20
}
eval heldout {
  model   = main
  env     = others
  samples = 8
  metrics = [pass_at(1), mean_reward()]
}
sweep rates {
  of     = main
  over   = { rate = [1e-5, 1e-4] }
  seeds  = 5
  metric = heldout.pass_at_1
}
claim faster {
  of   = rates
  that = at(rate == 1e-4) == at(rate == 1e-5)
}
