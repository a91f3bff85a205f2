param rate: float = 1e-4
param size: int = 8
model policy {
  base      = "tiny"
  lora_rank = 8
}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
advantage scheme = reinforce()
train main {
  model     = policy
  env       = guess
  batch     = groups(4, group_size = size)
  sampling  = sample(max_tokens = 16)
  advantage = scheme
  loss      = importance_sampling()
  optimizer = adam(rate)
  steps     = 20
}
eval heldout {
  model   = main
  env     = guess
  tasks   = 8
  metrics = [mean_reward(), pass_at(1)]
}
sweep schemes {
  of     = main
  over   = { scheme = [reinforce(), grpo()]  size = [1, 8] }
}
