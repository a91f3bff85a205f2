# messages of which none is the assistant's
model policy { base = "tiny" }
model other { base = "tiny" }
env sums = problems("data/sums.json", grader = exact)
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
sft warmup {
  model     = other
  data      = chats("data/chats.jsonl")
  batch     = 2
  optimizer = adam(1e-4)
  steps     = 2
}
