# Four stages: imitate, reinforce, imitate again what must not be forgotten, and evaluate each of
# them.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

sft first_form {
  model     = policy
  data      = rows("data/rows.jsonl")
  batch     = 4
  optimizer = adam(1e-3)
  steps     = 9
}

train main {
  model     = first_form
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = opo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

sft again {
  model     = main
  data      = demonstrations(guess, n = 96)
  batch     = 96
  optimizer = adam(1e-4, schedule = linear())
  steps     = 5
}

eval before {
  model    = first_form
  env      = guess
  sampling = sample(max_tokens = 16)
}

eval between {
  model   = main
  env     = guess
  tasks   = 11
  samples = 3
  metrics = [pass_at(3)]
}

eval after_all {
  model    = again
  env      = guess
  sampling = sample(max_tokens = 16)
}
