param rate: float = 1e-4
param number: int = 8
model policy {
  base      = "tiny"
  lora_rank = 8
}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
advantage scheme = grpo()
train main {
  model     = policy
  env       = guess
  batch     = groups(4, group_size = 8)
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
eval start { model = policy  env = guess  sampling = sample(max_tokens = 16)  tasks = number }
sweep rates {
  of     = main
  over   = { number = [8, 16] }
}
sweep hidden {
  of     = main
  over   = { rate = [1e-5, 1e-4]  main.optimizer.learning_rate = [1e-5, 1e-4] }
}
sweep part {
  of     = main
  over   = { main.optimizer.beta1 = [0.8, 0.9]  main.optimizer = [adam(1e-5), adam(1e-4)] }
}
