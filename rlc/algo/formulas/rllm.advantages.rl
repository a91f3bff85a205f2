# Advantages of rLLM 0.2 and 0.3 (rllm/trainer/common/advantage.py).

# GRPO of rLLM 0.3, with the biased deviation; a group of one keeps its return
advantage grpo(norm = true, scope = role) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, singleton = 0)
  spread  = std(total, over = scope, ddof = 0, singleton = 1)
  episode = where(norm, centred / (spread + 1e-6), centred)
}

# GRPO of rLLM 0.2, without eps; a group of one keeps its return
advantage legacy_grpo(scope = role) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, singleton = 0)
  episode = centred / std(total, over = scope, ddof = 0, singleton = 1)
}

# RLOO of rLLM 0.3; a group of one keeps its return
advantage rloo(scope = role) {
  total   = sum(reward)
  episode = total - mean(total, over = others(scope), singleton = 0)
}

# REINFORCE++-baseline of rLLM 0.3: over the spread of the role's rollouts, not of tokens
advantage reinforce_pp_baseline(scope = role) {
  total   = sum(reward)
  centred = total - mean(total, over = scope)
  episode = centred / (std(centred, over = batch_role, ddof = 0) + 1e-6)
}

# PRPO of rLLM 0.3: return less the mean of its role in the batch, over that role's spread
advantage prpo() {
  total   = sum(reward)
  centred = total - mean(total, over = batch_role)
  episode = centred / (std(centred, over = batch_role, ddof = 0) + 1e-6)
}
