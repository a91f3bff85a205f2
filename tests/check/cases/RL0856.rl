# rlc test recipe.rl
model policy {
  base      = "tiny"
  lora_rank = 8
}
env sums = python("data/unmade.py:make")
train main {
  model     = policy
  env       = sums
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}
test strict {
  env    = sums
  expect = [reward("4") == 1]
}
