# One task a step, attempted 64 times: for a hard task the spread within the group is all that
# counts, and it is well known from so many.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(1, group_size = 64)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
