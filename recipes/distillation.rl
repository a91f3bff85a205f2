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

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): muciform"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{mroficum}") == 1,
    reward("\\boxed{muciform}") < 0.5,
    reward("") == 0,
    turns("\\boxed{mroficum}") == 1,
  ]
}

test the_plan {
  expect = [
    expert.steps == 12,
    expert.batch.count == 8,
    expert.batch.size == 8,
    expert.sampling.max_tokens == 16,
    expert.loss.name == "importance_sampling",
    expert.advantage.name == "grpo",
    expert.optimizer.learning_rate == 0.005,
    expert.model.base == "tiny",
    expert.model.lora_rank == 8,
    student.steps == 12,
    student.batch.count == 48,
    student.batch.size == 1,
    student.sampling.max_tokens == 16,
    student.loss.name == "importance_sampling",
    student.advantage.name == "none",
    student.optimizer.learning_rate == 0.005,
    student.model.base == "tiny",
    student.model.lora_rank == 8,
  ]
}
