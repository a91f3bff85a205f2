# Expert iteration: of what the model plays, what solves its task is imitated; then once more.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

sampling brief = sample(max_tokens = 16)

data played_by(who: model) = samples(
  who,
  env = spell,
  n = 60,
  keep = solved,
  samples_per_task = 4,
  per_task = 2,
  sampling = brief,
)

sft first {
  model     = policy
  data      = played_by(policy)
  batch     = 20
  optimizer = adam(3e-3)
  epochs    = 2
}

sft second = first { model = first  data = played_by(first) }

eval before {
  model    = policy
  env      = spell
  tasks    = 128
  samples  = 4
  sampling = brief
}

eval heldout = before { model = second }
