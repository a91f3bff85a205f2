# rlc check recipe.rl
param rate: float = 1e-5

model policy {
  base = "Qwen/Qwen3-8B"
}
env sums = gem("rg:simple_equations") |> template(qwen3_general)
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
  env     = sums
  samples = 8
  metrics = [pass_at(1), pass_at(8)]
}
expect mian.reward > 0.5
expect cost.high < $20
expect rate < 1e-4
expect sums.reward > 0.5
expect held < 3
