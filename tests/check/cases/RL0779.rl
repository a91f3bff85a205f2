model policy { base = "tiny" }
model reader { base = "tiny" }
preference align {
  model     = reader
  data      = pairs("data/pairs.jsonl")
  loss      = simpo()
  optimizer = adam(1e-4)
  batch     = 4
  steps     = 2
}
judge model_alone = implicit_reward(reader)
sft warmup {
  model     = policy
  data      = rows("data/asked.jsonl", prompt = "question", reply = "answer")
  optimizer = adam(1e-3)
  batch     = 4
  steps     = 2
}
train main {
  model     = warmup
  env       = rows("data/asked.jsonl", prompt = "question")
    |> judged({ learnt = 0.5 * implicit_reward(align)  alone = model_alone  started = implicit_reward(warmup) })
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}
