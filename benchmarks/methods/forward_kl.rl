# A student that learns which tokens its teacher finds most likely. The reward says only whether all is
# right, and is measured, not learnt from.

param taught: int = 60  # steps of the teacher
param rate: float = 1e-3  # and how much it learns from each

model policy {
  base      = "tiny"
  lora_rank = 8
}

model master = policy { lora_rank = 8 }

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")
env right = gem("rg:spell_backward")
  |> chat(instruction = "Put your answer inside \\boxed{}.")
  |> reward(where(total > 0.99, 1, 0))

train teacher {
  model     = master
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(rate)
  steps     = taught
}

train student {
  model     = policy
  env       = right
  teacher   = forward_kl(teacher, top_k = 20)
  batch     = groups(32, group_size = 1)
  sampling  = sample(max_tokens = 16)
  loss      = cross_entropy()
  optimizer = adam(1e-3)
  steps     = 40
}

eval heldout {
  model   = student
  env     = right
  tasks   = 128
  samples = 4
  every   = 5
  first   = true
}
