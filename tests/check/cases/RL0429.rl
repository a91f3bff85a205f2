model policy {
  base      = "tiny"
  lora_rank = 8
}

model qwen {
  base = "Qwen/Qwen3-8B"
}

env spell = gem("rg:spell_backward") |> chat()
env sums = gem("rg:chain_sum") |> template(no)
env words = problems(gsm8k)

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = words
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train third {
  model     = qwen
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
}
