model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

env spell = gem("rg:spell_backward") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model     = policy
  env       = 1_000 * guess + spell
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}

eval heldout {
  model = main
  env   = 100 * guess + spell
  tasks = 16
}
