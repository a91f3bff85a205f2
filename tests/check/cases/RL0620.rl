optimizer slow = adam(1e-4)
optimizer slower = adam(1e-5)
param steps = 3

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
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = slow { learning_rate = 1e-3 }
  steps     = 50
}

train longer = slower { steps = 400 }
train most = steps { steps = 400 }
train other = policy.base { steps = 400 }
