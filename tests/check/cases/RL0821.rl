# rlc emit --target script
model policy { base = "tiny" }

env spell = gem("rg:spell_backward")
  |> chat()
  |> rollouts(timeout = 5m)

train main {
  model     = policy
  env       = spell
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
