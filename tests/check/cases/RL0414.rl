model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = gem("rg:simple_equations") |> concat() |> template(qwen3_general)

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
