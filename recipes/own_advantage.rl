# An advantage of one's own: an expression over episodes, from the names that docs/advantages.md has.
# `rlc explain --full` prints it as a formula.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

# Leave-one-out over the spread of the batch; a correct reply that is longer than the correct ones of
# its group are on average gets less, the more of the group are correct.
advantage brief(price = 0.2, eps = 1e-6) {
  total   = sum(reward)
  right   = where(total >= 1, 1, 0)
  passed  = mean(right, over = group)
  usual   = mean(length, over = group, weight = right)
  excess  = clip((length - usual) / max(usual, 1), -1, 1)
  paid    = total - price * passed * right * excess
  centred = paid - mean(paid, over = others)
  episode = centred / (std(paid, over = batch) + eps)
}

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = brief()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
}
