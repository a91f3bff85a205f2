# Grade-school math, right or wrong: tinker-cookbook's `rl_loop`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

env gsm8k = problems(
  gsm8k,
  grader = math,
  shuffle = false,
  few_shot = "strawberry.jsonl",
  suffix = " Provide a numerical answer without units, written inside \\boxed{}.",
  format_coef = 0,
)

train main {
  model     = policy
  env       = gsm8k
  batch     = groups(128, group_size = 16)
  sampling  = sample(max_tokens = 256, temperature = 1.0)
  advantage = cookbook.center(drop_constant = true)  # groups of equals are skipped
  loss      = stable_reinforce()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 58  # the whole batches of 7,473 questions
  save      = every(20, ttl = 7d)
}
