# Off-policy distillation: an expert plays once, and the student learns what it wrote and what else it
# might have written in each place. Nothing is asked again, however many epochs follow.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

sampling brief = sample(max_tokens = 16)

train expert {
  model     = policy
  env       = spell
  batch     = groups(8, group_size = 8)
  sampling  = brief
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(5e-3)
  steps     = 12
}

sft student {
  model     = policy  # begins where the expert did
  data      = samples(expert, env = spell, n = 64, keep = all, top_k = 20, sampling = brief)
  batch     = 16
  optimizer = adam(5e-3)
  epochs    = 3
}

eval before {
  model    = policy
  env      = spell
  sampling = brief
}

eval after {
  model    = student
  env      = spell
  sampling = brief
}
