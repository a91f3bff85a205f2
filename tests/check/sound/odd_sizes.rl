# Sizes that divide nothing: seven groups of five, each an update of its own, so that from the
# second on the clip acts.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(7, group_size = 5, updates = 7)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = ppo(clip_low = 0.7, clip_high = 1.28)
  optimizer = adam(1e-3)
  steps     = 53
}
