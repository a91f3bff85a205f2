model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

env tests = problems(gsm8k, split = "test", samples = 2_000, suffix = " Answer in \\boxed{}.")
env some = problems(countdown, grader = countdown, samples = 40)

train main {
  model     = policy
  env       = some
  batch     = groups(16, group_size = 8, updates = 32)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train second {
  model     = main
  env       = some
  batch     = groups(64, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

train third {
  model     = second
  env       = some
  batch     = groups(32, group_size = 8, resample = 16)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
  overlap   = streamed(minibatches = 48)
}

eval heldout {
  model = third
  env   = tests
  tasks = 2_500
}

sft warmup {
  model     = third
  data      = demonstrations(guess, n = 16)
  batch     = 32
  optimizer = adam(1e-3)
  steps     = 10
}
