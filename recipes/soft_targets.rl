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
    student.epochs == 3,
    student.batch == 16,
    student.data.env.id == "rg:spell_backward",
    student.data.env.rollouts.max_tokens == 16,
    student.data.count == 64,
    student.data.model.model.base == "tiny",
    student.data.model.model.lora_rank == 8,
    student.data.keep.kind == "all",
    student.data.sampling.max_tokens == 16,
    student.data.top_k == 20,
    student.optimizer.learning_rate == 0.005,
  ]
}
