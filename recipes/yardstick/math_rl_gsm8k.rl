# Grade-school math, 64 answers to each: tinker-cookbook's `math_rl` with `env=gsm8k`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env school(part: string = "train") = problems(
  gsm8k,
  split = part,
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = school()
  batch     = groups(32, group_size = 64)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(8e-5)
  epochs    = 1
  save      = every(20, ttl = 7d)
}

eval heldout {
  model = main
  env   = school(part = "test")
  tasks = 1_319
  every = 20
  first = true
}
