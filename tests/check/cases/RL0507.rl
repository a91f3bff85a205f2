# more than there is
model policy { base = "tiny" }
env sums = problems("data/sums.json", split = first(50%), samples = 100, grader = exact)
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
eval test { model = main  env = problems("data/sums.json", split = last(1%), grader = exact)  tasks = 2 }
