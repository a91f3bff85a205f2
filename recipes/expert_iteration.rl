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
