# Shorter replies where they are already right: what a reply loses by its length is scaled by the
# share of its group that is right, so that words nobody can spell yet cost nothing extra. As in
# prime-rl's linear length penalty, and as the adaptive one of arXiv 2506.05256.

param longest: int = 24  # tokens of a reply

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward")
  |> chat(instruction = "Put your answer inside \\boxed{}.")
  |> reward(total - 0.2 * mean(where(total >= 1, 1, 0), over = group) * tokens / longest)

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)  # whose members the reward compares
  sampling  = sample(max_tokens = longest)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 32
  metrics = [pass_at(1)]  # by the reward before it was shaped
}
