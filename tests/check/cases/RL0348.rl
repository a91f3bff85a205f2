model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = gem("rg:simple_equations") |> template(qwen3_general) |> workers(ray, count = 4)

train main {
  model     = policy
  env       = sums
  batch     = groups(64, group_size = 8)
  sampling  = sample(max_tokens = 16)
  players   = processes(8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
