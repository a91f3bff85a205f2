model policy { base = "tiny" }
model reader { base = "tiny" }
preference align {
  model     = reader
  data      = pairs("data/pairs.jsonl")
  loss      = ipo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
train main {
  model     = policy
  env       = rows("data/asked.jsonl", prompt = "question") |> judged(implicit_reward(align))
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = rebn()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
