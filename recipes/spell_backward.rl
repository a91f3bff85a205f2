# One question, one answer: spell a word backwards. The single-turn sister of quickstart.rl, done
# in about 15 seconds.

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

# The reward is for what stands in \boxed{}, which the question never says: the instruction must.
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 40
  save      = every(20)
}
