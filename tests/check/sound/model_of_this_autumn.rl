# A model that no list has yet, with all that there is to say of it: its chats, its context, its
# prices with their day.

model policy {
  base     = "vendor/New-8B"
  service  = tinker
  renderer = llama3
  context  = 65_536
  price    = price($0.2, sample = $0.6, train = $0.6, checkpoint = $0.1, as_of = "2026-11-20")
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}

expect main.cost.high < $20
