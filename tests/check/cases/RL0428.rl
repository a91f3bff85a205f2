model policy {
  base      = "tiny"
  lora_rank = 8
}

env tests = problems(gsm8k, split = "test", suffix = " Answer in \\boxed{}.")
env known = gem("eval:MATH500") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = tests
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = known
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
