# No momentum, a long memory of the square, gradients of norm 1, weight decay; a rate that rises
# for a fifth of the run and then falls to a tenth.

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
  optimizer = adam(
    2e-2,
    beta1 = 0,
    beta2 = 0.999,
    eps = 1e-12,
    weight_decay = 0.1,
    grad_clip_norm = 1,
    schedule = cosine(warmup = 10, floor = 10%),
  )
  steps     = 50
}
