# No reward at all: whatever the model says is worth 0, and it only learns to be what it was before,
# from a saved state, on prompts that it meets in the game.

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
  renderer  = qwen3_instruct
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(low = 0, high = 0)

train main {
  model     = policy
  env       = guess
  batch     = groups(32, group_size = 4)
  sampling  = sample(max_tokens = 128)
  advantage = center()
  loss      = importance_sampling()
  kl        = reference("tinker://before/weights/main-000200", coef = 1, discount = 0.9)
  optimizer = adam(1e-5)
  steps     = 40
}
