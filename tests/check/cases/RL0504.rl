# questions that are no text
model policy { base = "tiny" }
env sums = problems("data/numbers.jsonl", grader = exact)
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
