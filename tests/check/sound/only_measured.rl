# No training at all: greedy once, and sampled 64 times, of the same tasks.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env hard = problems(math, split = test, suffix = " Put the final answer in \\boxed{}.")

eval greedy {
  model    = policy
  env      = hard
  tasks    = 500
  sampling = sample(max_tokens = 2_048, top_k = 1)
  metrics  = [mean_reward()]
}

eval sampled {
  model    = policy
  env      = hard
  tasks    = 50
  samples  = 64
  sampling = sample(max_tokens = 2_048, temperature = 0.6, top_p = 0.95)
  metrics  = [pass_at(1), pass_at(64), any_at(64)]
}
