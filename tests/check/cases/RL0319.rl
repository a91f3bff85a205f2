model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rebn(gamma = 0.9)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  aggregate = token_mean()
  overlap   = streamed(minibatches = 4)
}

train second {
  model     = main
  env       = guess
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  overlap   = streamed(minibatches = 4)
}

train third {  # whose reference reads each part while others are played
  model     = second
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  aggregate = token_mean()
  kl        = reference("tiny", coef = 0.01)
  overlap   = streamed(minibatches = 4)
}

train fourth {  # which draws the turns that it trains on from all of them
  model     = third
  env       = guess
  batch     = turns(64, parallel = 16)
  sampling  = sample(max_tokens = 16)
  advantage = returns()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  overlap   = streamed(minibatches = 4)
}

train fifth {
  model     = fourth
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = ppo()
  optimizer = adam(1e-3)
  steps     = 50
  aggregate = token_mean()
  overlap   = asynchronous(minibatches = 4)
}
