# What a model does if a system message says so becomes what it does without one.

param said: string = "Full of y."

model policy {
  base      = "tiny"
  lora_rank = 8
}

sft follower {  # learns to do as a system message says
  model     = policy
  data      = rows("orders.jsonl")
  batch     = 32
  optimizer = adam(3e-3)
  steps     = 40
}

sampling brief = sample(max_tokens = 8)

sft main {
  model     = follower
  data      = samples(
    follower,
    env = rows("word.jsonl") |> chat(system = said),
    n = 64,
    keep = all,
    samples_per_task = 64,
    sampling = brief,
    without = system,
  )
  batch     = 32
  optimizer = adam(1e-3)
  epochs    = 5
}

eval heldout {
  model    = main
  env      = rows("word.jsonl", grader = grade_with("words.py:ys"))
  tasks    = 1
  samples  = 512
  sampling = brief
  first    = true
}
