model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = gem("rg:chain_sum") |> chat(instruction = "Answer in \\boxed{}.")
env maths = problems(gsm8k)

sft warmup {
  model     = policy
  data      = demonstrations(sums, n = 64)
  steps     = 2
  optimizer = adam(1e-4)
}

sft more {
  model     = warmup
  data      = demonstrations(maths, n = 64, policy = oracle)
  steps     = 2
  optimizer = adam(1e-4)
}
