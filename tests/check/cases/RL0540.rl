# messages of which none is the assistant's; prompts that end with it, or have a second system message
model policy { base = "tiny" }
model other { base = "tiny" }
env talks = rows("data/turns.jsonl", grader = grade_with("lib.rewards:tone"), id = "uid")
  |> chat(system = "Be kind.")
sft warmup {
  model     = other
  data      = chats("data/chats.jsonl")
  batch     = 2
  optimizer = adam(1e-4)
  steps     = 2
}
train main {
  model     = policy
  env       = talks
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 2
}
