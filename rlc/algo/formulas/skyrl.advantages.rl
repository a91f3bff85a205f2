# Advantages of SkyRL 0.3.0 (skyrl/train/utils/ppo_utils.py).

# GRPO of SkyRL 0.3.0, as verl's; a group of one keeps its return
advantage grpo(norm = true, scope = group) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, singleton = 0)
  episode = where(norm, centred / (std(total, over = scope, singleton = 1) + 1e-6), centred)
}

# RLOO of SkyRL 0.3.0; a group of one gets 0
advantage rloo(scope = group) {
  total   = sum(reward)
  episode = total - mean(total, over = others(scope))
}

# MaxRL of SkyRL 0.3.0; a group of one keeps its return, and a mean that is not positive gives 0
# where SkyRL turns signs around
advantage maxrl(scope = group) {
  total   = sum(reward)
  average = mean(total, over = scope)
  shared  = where(average > 0, (total - average) / (average + 1e-6), 0)
  episode = where(count(total, over = scope) > 1, shared, total)
}
