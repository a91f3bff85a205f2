# One file without splits: nine tenths to train on, decided by what is asked, the rest to
# evaluate with. The second form never saw the mark, but the questions ask for it.

model policy {
  base = "Qwen/Qwen3-8B"
}

env learnt = problems("data/questions.jsonl", split = first(75%, by = hash))

env asked = problems("data/questions.jsonl", split = last(25%, by = hash))

train main {
  model     = policy
  env       = learnt
  batch     = groups(4, group_size = 32)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}

eval held_out {
  model   = main
  env     = asked
  tasks   = 2
  samples = 16
  metrics = [pass_at(1), pass_at(16)]
  every   = 7
}
