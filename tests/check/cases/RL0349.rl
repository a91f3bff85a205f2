model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = gem("rg:simple_equations") |> template(qwen3_general)

train main {
  model     = policy
  env       = sums
  batch     = groups(4, group_size = 8)
  sampling  = sample(max_tokens = 16)
  players   = processes(16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval heldout {
  model    = main
  env      = sums
  tasks    = 100
  samples  = 4
  sampling = sample(max_tokens = 16, concurrency = 32)
  players  = ray(16)
}
