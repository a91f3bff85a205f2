# A scheme put together from steps: discounted returns of turns, compared within the group,
# scaled over the batch, limited on one side only.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(turns)

advantage mine = returns(gamma = 0.95)
  |> baseline(leave_one_out, over = group)
  |> scale(rms, over = batch, eps = 1e-4, eps_place = inside)
  |> clip(high = 3)

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = mine
  loss      = importance_sampling()
  aggregate = prompt_mean()
  optimizer = adam(1e-3)
  steps     = 50
}
