# The better and the worse of the model's own replies, learnt from without a reward.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

preference main {
  model     = policy
  data      = pairs("pairs.jsonl")
  batch     = 32
  loss      = dpo()
  optimizer = adam(1e-3)
  epochs    = 3
}

eval heldout {
  model    = main
  env      = spell
  tasks    = 128
  samples  = 4
  sampling = sample(max_tokens = 16)
  first    = true
}
