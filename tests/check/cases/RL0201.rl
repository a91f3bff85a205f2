param rate: float = "fast"

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = guess
  env       = "guess"
  batch     = groups("16", group_size = true)
  sampling  = sample(max_tokens = 16)
  advantage = 3
  loss      = grpo()
  optimizer = [1]
  steps     = 2.5
  budget    = 60
  save      = every(20, ttl = 7)
  on_error  = retry(3)
}

model unquoted {
  base = tiny
}

env third = guess * 2
env fourth = chat() |> chat()
advantage fifth = baseline(mean, over = group)

train second {
  model     = "tiny"
  env       = guess
  batch     = groups(16)
  sampling  = sample(max_tokens = 16)
  advantage = grpo() |> chat()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = policy
  on_error  = drop then stop
}
env sixth = rows("data/words.jsonl", grader = 0.5 * exact + exact)
env seventh = rows("data/words.jsonl", grader = [exact, numeric], split = 0.75)
