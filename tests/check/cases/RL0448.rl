model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Answer in \\boxed{}.")

train main {
  model        = policy
  env          = spell
  batch        = groups(16, group_size = 8)
  sampling     = sample(max_tokens = 16)
  advantage    = grpo()
  loss         = importance_sampling()
  observations = 0.1
  optimizer    = adam(1e-3)
  steps        = 50
}
