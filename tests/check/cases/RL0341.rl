model policy {
  base      = "Qwen/Qwen3.5-4B"
  service   = together
  train_mlp = false
}

env sums = gem("rg:simple_equations") |> template(qwen3_general)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = stable_reinforce(kl_coeff = 0.1)
  kl        = reference(policy.base, coef = 0.1)
  optimizer = adam(1e-4)
  steps     = 50
}
