# rlc check recipe.rl
model policy {
  base = "Qwen/Qwen3-8B"
}
env sums = gem("rg:simple_equations") |> template(qwen3_general)
train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  optimizer = adam(1e-5)
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
expect main.loss.name == 3
expect main.cost.high < true
expect main.steps < main.batch.count * main.batch.size
expect main.budget.usd < $20
expect main.steps < main.steps
