# Advantages of NeMo-RL 0.4 to 0.7 (nemo_rl/algorithms/grpo.py).

# GRPO of NeMo-RL 0.4 to 0.7; a group of one gets 0
advantage grpo(leave_one_out = true, normalize = true, scope = group) {
  total   = sum(reward)
  left    = total - mean(total, over = others(scope))
  apart   = std(total, over = others(scope))
  alone   = where(normalize, where(apart > 0, left / (apart + 1e-6), left), left)
  centred = total - mean(total, over = scope)
  whole   = where(normalize, centred / (std(total, over = scope) + 1e-6), centred)
  episode = where(leave_one_out, alone, whole)
}

# REINFORCE++ of NeMo-RL 0.7: return less the group's mean, whitened over all tokens
advantage reinforce_pp(minus_baseline = true, scope = group) {
  total    = sum(reward)
  relative = where(minus_baseline, total - mean(total, over = scope), total)
  centred  = relative - mean(relative, over = batch, weight = length)
  spread   = std(centred, over = batch, weight = length, ddof = 0)
  episode  = where(length > 0, centred / max(spread, 1e-4), 0)
}
