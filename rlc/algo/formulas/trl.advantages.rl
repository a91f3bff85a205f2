# Advantages of TRL 1.16 (GRPOTrainer, RLOOTrainer).

# GRPO of TRL 1.16; scaled over the batch it divides by the spread of the raw returns
advantage grpo(scale_rewards = group, scope = group) {
  total   = sum(reward)
  centred = total - mean(total, over = scope)
  within  = where(scale_rewards == group, centred / (std(total, over = scope) + 1e-4), centred)
  episode = where(scale_rewards == batch, centred / (std(total, over = batch) + 1e-4), within)
}

# RLOO of TRL 1.16; a group of one is left out
advantage rloo(normalize = false, scope = group) {
  total   = sum(reward)
  keep    = count(total, over = scope) - 1
  left    = total - mean(total, over = others(scope))
  white   = left - mean(left, over = batch)
  episode = where(normalize, white / (std(white, over = batch) + 1e-4), left)
}

# normalize_then_sum of TRL 1.16: each reward within its group, then the sum over the batch
advantage gdpo(scope = group) {
  part    = sum(parts)
  centred = part - mean(part, over = scope)
  normed  = centred / (std(part, over = scope) + 1e-4)
  summed  = sum(weights * normed, over = components)
  white   = summed - mean(summed, over = batch)
  episode = white / (std(white, over = batch) + 1e-4)
}
