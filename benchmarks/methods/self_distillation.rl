# What a model says after it has seen an example becomes what it says without one: it is its own
# teacher, which is shown a demonstration of each task.

param shown: string = "demonstrated.jsonl"

model policy {
  base      = "tiny"
  lora_rank = 8
}

sft follower {  # learns to reply as an example does
  model     = policy
  data      = rows("examples.jsonl")
  batch     = 32
  optimizer = adam(3e-3)
  steps     = 60
}

sampling brief = sample(max_tokens = 8)

train main {
  model     = follower
  env       = rows(shown)
  teacher   = forward_kl(follower, demonstration = "demonstration", top_k = 20)
  batch     = groups(32, group_size = 1)
  sampling  = brief
  loss      = cross_entropy()
  optimizer = adam(1e-3)
  steps     = 40
}

eval heldout {
  model    = main
  env      = rows("word.jsonl", grader = grade_with("words.py:ys"))
  tasks    = 1
  samples  = 512
  sampling = brief
  first    = true
}
