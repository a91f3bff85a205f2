# Expert iteration: a model plays, what solves its task is kept, the model learns that, and plays
# again. Every episode is in the run folder as soon as it is played, and is never paid for twice.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

sampling brief = sample(max_tokens = 16)

data solved_by(who: model) = samples(
  who,
  env = spell,
  n = 60,
  keep = solved,
  samples_per_task = 4,
  per_task = 2,
  sampling = brief,
)

sft round1 {
  model     = policy
  data      = solved_by(policy)
  batch     = 20
  optimizer = adam(3e-3)
  epochs    = 2
}

sft round2 {
  model     = round1
  data      = solved_by(round1)
  batch     = 20
  optimizer = adam(3e-3)
  epochs    = 2
}

eval before {
  model    = policy
  env      = spell
  sampling = brief
}

eval after {
  model    = round2
  env      = spell
  sampling = brief
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): cerebrum"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{murberec}") == 1,
    reward("\\boxed{cerebrum}") < 0.5,
    reward("") == 0,
    turns("\\boxed{murberec}") == 1,
  ]
}

test the_plan {
  expect = [
    round1.steps == 6,
    round1.epochs == 2,
    round1.batch == 20,
    round1.data.env.id == "rg:spell_backward",
    round1.data.env.rollouts.group == 4,
    round1.data.env.rollouts.max_tokens == 16,
    round1.data.count == 60,
    round1.data.model.model.base == "tiny",
    round1.data.model.model.lora_rank == 8,
    round1.data.keep.kind == "solved",
    round1.data.size == 4,
    round1.data.per_task == 2,
    round2.steps == 6,
    round2.epochs == 2,
    round2.batch == 20,
    round2.data.env.id == "rg:spell_backward",
    round2.data.env.rollouts.group == 4,
    round2.data.env.rollouts.max_tokens == 16,
    round2.data.count == 60,
    round2.data.model.model.base == "tiny",
    round2.data.model.model.lora_rank == 8,
    round2.data.keep.kind == "solved",
    round2.data.size == 4,
    round2.data.per_task == 2,
  ]
}
