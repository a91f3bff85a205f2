# a split that the rows do not know, and one that a set does not
model policy { base = "tiny" }
env sums = problems("data/sums.json", split = "tets", grader = exact)
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
eval game { model = main  env = problems(countdown, split = "stage1", grader = countdown) }
