# Competition math, 12,000 problems: tinker-cookbook's `math_rl` with `env=math`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env competition(part: string = "train") = problems(
  math,
  split = part,
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = competition()
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(2e-5)
  epochs    = 1
  save      = every(20, ttl = 7d)
}

eval math500 {
  model = main
  env   = competition(part = "test")
  tasks = 500
  every = 20
  first = true
}
