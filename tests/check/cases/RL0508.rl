# answers in words, and a pattern that is none
model policy { base = "tiny" }
env sums = problems("data/words.jsonl", split = first(50%), grader = numeric)
env others = problems("data/words.jsonl", split = last(50%), grader = regex("([a-z"))
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
eval test { model = main  env = others  tasks = 2 }
