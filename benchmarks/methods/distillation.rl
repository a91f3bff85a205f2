# A student graded token by token by a teacher, where the reward says only whether all is right.

model policy {
  base      = "tiny"
  lora_rank = 8
}

model reinforced = policy { lora_rank = 8 }
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
  optimizer = adam(1e-3)
  steps     = 60
}

train student {
  model     = policy
  env       = right
  teacher   = reverse_kl(teacher)
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 16)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
}

train both = student { advantage = grpo(), teacher = reverse_kl(teacher, coef = 0.3) }

train alone {
  model     = reinforced
  env       = right
  batch     = groups(8, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
}

eval of_student {
  model   = student
  env     = right
  tasks   = 128
  samples = 4
  every   = 5
  first   = true
}

eval of_both = of_student { model = both }
eval of_alone = of_student { model = alone }
