# Qwen3's own renderers rewrite earlier turns; in the markup of its instruct models, which it
# knows as well, a chat of several turns stays one sequence.

model policy {
  base     = "Qwen/Qwen3-8B"
  renderer = qwen3_instruct
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 256)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
