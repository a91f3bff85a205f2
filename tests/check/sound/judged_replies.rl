# Everything that judges: models, what a stage leaves, endpoints, functions; alone, ranked and in pairs.
model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

model reader {
  base      = "tiny"
  lora_rank = 16
}

sft grader {
  model     = big
  data      = rows("data/rows.jsonl")
  batch     = 2
  optimizer = adam(1e-3)
  steps     = 4
}

preference align {
  model     = reader
  data      = pairs("data/liked.jsonl")
  loss      = dpo()
  batch     = 2
  optimizer = adam(1e-4)
  steps     = 4
}

judge clear = rubric("data/rubric.md", model = big, scale = [0, 5])
judge brief = rubric("Is it brief?", model = grader)
judge asked = rubric(
  "Does it answer?",
  model = endpoint("http://127.0.0.1:1/v1", model = "judge-1", key = "JUDGE_KEY", prompt_price = $1),
)

env essays = rows("data/rows.jsonl") |> judged({ clear = 0.7 * clear  brief = 0.3 * brief })
env ranked = rows("data/rows.jsonl") |> compared(asked) |> rollouts(group_size = 4)
env paired = rows("data/rows.jsonl") |> judged(0 * clear) |> compared(brief, by = pairwise)
env shorter = rows("data/rows.jsonl") |> compared(compare_with("shorter.py:shorter"), by = pairwise)
env liked = rows("data/rows.jsonl") |> judged({ clear = clear  learnt = 0.5 * implicit_reward(align) })

advantage apart = returns()
  |> baseline(mean, over = group)
  |> scale(std, over = group)
  |> weighted_sum()
  |> scale(rms, over = batch)

train first {
  model     = policy
  env       = essays
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = verl.gdpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}

train second {
  model     = first
  env       = essays
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = trl.gdpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}

train third {
  model     = second
  env       = essays
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = gdpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 2
}

train main {
  model     = third
  env       = essays + ranked + paired + liked + shorter
  batch     = groups(5, group_size = 4)
  sampling  = sample(max_tokens = 32)
  advantage = apart
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 4
}
