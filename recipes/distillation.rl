# On-policy distillation: a teacher is trained with a reward, and a student without one. The teacher
# scores every token that the student samples, until that does what the teacher does.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train expert {
  model     = policy
  env       = spell
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(5e-3)
  steps     = 12
}

train student {
  model     = policy  # begins where the expert did
  env       = spell
  batch     = groups(48, group_size = 1)  # nobody is compared, so a task is played once
  sampling  = sample(max_tokens = 16)
  teacher   = reverse_kl(expert)  # instead of an advantage; beside one it would be added
  loss      = importance_sampling()
  optimizer = adam(5e-3)
  steps     = 12
}

eval before {
  model    = policy
  env      = spell
  sampling = sample(max_tokens = 16)
}

eval after {
  model = student
  env   = spell
}
