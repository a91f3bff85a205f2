param rate: float = 1e-4
param size: int = 8
model policy {
  base      = "tiny"
  lora_rank = 8
}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
advantage scheme = grpo()
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
sweep rates {
  of     = main
  over   = {
    rate = [1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 6e-6, 7e-6, 8e-6, 9e-6, 10e-6, 11e-6, 12e-6, 13e-6, 14e-6, 15e-6, 16e-6, 17e-6, 18e-6, 19e-6, 20e-6, 21e-6, 22e-6, 23e-6, 24e-6, 25e-6, 26e-6, 27e-6, 28e-6, 29e-6, 30e-6, 31e-6, 32e-6, 33e-6, 34e-6, 35e-6, 36e-6, 37e-6, 38e-6, 39e-6, 40e-6, 41e-6, 42e-6, 43e-6, 44e-6, 45e-6, 46e-6, 47e-6, 48e-6, 49e-6, 50e-6]
    size = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51]
  }
}
