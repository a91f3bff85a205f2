# Four replies of the model to each of many words: what preferences are made of.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

eval replies {
  model    = policy
  env      = spell
  tasks    = 384
  samples  = 4
  sampling = sample(max_tokens = 16)
}
