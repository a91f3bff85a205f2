# What a preference stage has learnt trains another model: the prompts alone, and no other reward.

model policy {
  base      = "tiny"
  lora_rank = 8
}

model reader {
  base      = "tiny"
  lora_rank = 8
}

preference align {
  model     = reader
  data      = pairs("pairs.jsonl")
  batch     = 32
  loss      = dpo()
  optimizer = adam(1e-3)
  epochs    = 2
}

train main {
  model     = policy
  env       = rows("pairs.jsonl") |> judged(implicit_reward(align))
  batch     = groups(16, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference(policy.base, coef = 0.1)
  optimizer = adam(1e-3)
  steps     = 10
}

eval heldout {
  model    = main
  env      = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")
  tasks    = 128
  samples  = 4
  sampling = sample(max_tokens = 16)
  first    = true
}
