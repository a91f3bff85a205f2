model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

advantage near(beta = 0.05) {
  total = sum(reward)
  token = total - mean(total, over = group) - beta * (logq - ref)
}

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = near()
  loss      = importance_sampling()
  kl        = reference(policy.base, coef = 0.01)
  optimizer = adam(1e-3)
  steps     = 50
}
