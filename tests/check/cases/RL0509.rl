# the answers are far longer than a grader reads, and a solved problem without a box
model policy { base = "tiny" }
env sums = problems("data/worked.jsonl", few_shot = "data/sums.json", suffix = " Use \\boxed{}.")
train main {
  model     = policy
  env       = sums
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 2
}
