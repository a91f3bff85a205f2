# Competition math, 53,000 problems: tinker-cookbook's `math_rl` with `env=polaris`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
}

env polaris = problems(
  "hub:POLARIS-Project/Polaris-Dataset-53K",
  question = "problem",
  few_shot = "strawberry.jsonl",
  suffix = " Write your answer in \\boxed{} format.",
)

train main {
  model     = policy
  env       = polaris
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(2e-5)
  steps     = 833  # 53,291 problems, each once
  save      = every(20, ttl = 7d)
}
