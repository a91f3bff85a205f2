# Two environments in one batch: of three tasks two are games and one is a word to spell.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train main {
  model     = policy
  env       = 2 * guess + 1 * spell  # a bare name has weight 1
  batch     = groups(18, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()  # each rollout against its own group, never across
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
  save      = every(20)
}
