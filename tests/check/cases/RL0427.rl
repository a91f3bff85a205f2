model policy {
  base      = "tiny"
  lora_rank = 8
}

env learnt = problems(gsm8k, suffix = " Answer in \\boxed{}.")
env asked = problems(gsm8k, suffix = " Put the answer in \\boxed{}.", format_coef = 0)

train main {
  model     = policy
  env       = learnt
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval heldout {
  model = main
  env   = asked
}
