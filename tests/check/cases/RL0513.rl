# rlc check --import
model policy {
  base = "Qwen/Qwen3-8B"
}

env sums = problems("data/words.jsonl", grader = exact)

train main {
  model     = policy
  env       = sums
  batch     = groups(1, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
  track     = wandb(project = "sums")
}
