# Distillation of distributions: at each place the student learns which tokens its teacher finds
# likeliest, instead of what that thinks of the one that was sampled (`distillation.rl`).

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
  batch     = groups(16, group_size = 1)  # a third of what `distillation.rl` plays
  sampling  = sample(max_tokens = 16)
  teacher   = forward_kl(expert, top_k = 20)
  loss      = cross_entropy()  # of the teacher's tokens; there is no advantage
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
    student.batch.count == 16,
    student.batch.size == 1,
    student.sampling.max_tokens == 16,
    student.loss.name == "cross_entropy",
    student.advantage.name == "none",
    student.optimizer.learning_rate == 0.005,
    student.model.base == "tiny",
    student.model.lora_rank == 8,
  ]
}
