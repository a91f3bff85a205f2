# Nine to one, with a size of its own for the small part: in 50 steps of 18 groups even the small
# one has its 90.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

env spell = gem("rg:spell_backward")
  |> template(qwen3_general)
  |> rollouts(group_size = 24, max_tokens = 12)

train main {
  model     = policy
  env       = 9 * guess + 1 * spell
  batch     = groups(18, group_size = 6)
  sampling  = sample(max_tokens = 16)
  advantage = center(scope = env)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
