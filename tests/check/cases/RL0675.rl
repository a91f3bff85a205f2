# rlc check recipe.rl
model policy {
  base = "Qwen/Qwen3-8B"
}
env sums = gem("rg:simple_equations") |> template(qwen3_general)
train main {
  model     = policy
  env       = sums
  batch     = turns(128, parallel = 64)
  sampling  = sample(max_tokens = 512)
  optimizer = adam(1e-5)
  loss      = importance_sampling()
  advantage = reinforce()
  steps     = 20
}
expect main.rollouts < 10_000
