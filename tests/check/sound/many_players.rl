# Many episodes at once, played by the actors of a cluster, and a few of them here.

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
}

env sums = problems(gsm8k, split = train, suffix = " Put your answer in \\boxed{}.")
env unseen = problems(gsm8k, split = test, suffix = " Put your answer in \\boxed{}.")

train main {
  model     = policy
  env       = sums
  batch     = groups(128, group_size = 16)
  sampling  = sample(max_tokens = 512)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(5e-4)
  steps     = 50
  players   = ray(32, cpus = 2)
}

eval heldout {
  model    = main
  env      = unseen
  tasks    = 64
  samples  = 2
  metrics  = [mean_reward()]
  sampling = sample(max_tokens = 512)
  players  = here
}
