param rate: float = 7

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(0)
  sampling  = sample(max_tokens = 16, temperature = 0, top_p = 1.5)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(rate, beta1 = 1)
  steps     = 50
  save      = every(20, ttl = 5m)
}

param steps = 100_000_000_000_000_000_000

train second {
  model     = policy
  env       = guess
  batch     = groups(16)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = steps
}

env words = problems("data/words.jsonl", split = first(10))
