model policy {
  base      = "tiny"
  lora_rank = 8
}

env ttt = textarena("Poker-v0") |> play(against = random())
env tak = textarena("SimpleTak-v0") |> play(against = perfect())

train main {
  model     = policy
  env       = ttt + tak
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
