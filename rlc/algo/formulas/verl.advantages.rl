# Advantages of verl 0.9.1 (verl/trainer/ppo/core_algos.py).

# GRPO of verl 0.9.1; a group of one keeps its return
advantage grpo(norm = true, scope = group) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, singleton = 0)
  episode = where(norm, centred / (std(total, over = scope, singleton = 1) + 1e-6), centred)
}

# RLOO of verl 0.9.1; a group of one keeps its return
advantage rloo(scope = group) {
  total   = sum(reward)
  episode = total - mean(total, over = others(scope), singleton = 0)
}

# RLOO of verl 0.9.1, vectorised; a group of one gets 0
advantage rloo_vectorized(scope = group) {
  total   = sum(reward)
  episode = total - mean(total, over = others(scope))
}

# OPO of verl 0.9.1; a group of one keeps its return
advantage opo(scope = group) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, weight = length, singleton = 0)
  episode = where(count(total, over = scope) > 1, where(length > 0, centred, 0), centred)
}

# REINFORCE++-baseline of verl 0.9.1; a group of one keeps its return before whitening
advantage reinforce_pp_baseline(scope = group) {
  total    = sum(reward)
  relative = total - mean(total, over = scope, singleton = 0)
  centred  = relative - mean(relative, over = batch, weight = length)
  spread   = std(centred, over = batch, weight = length)
  episode  = where(length > 0, centred / sqrt(spread * spread + 1e-8), 0)
}

# GDPO of verl 0.9.1: each reward within its group, the sum whitened over all tokens
advantage gdpo(norm = true, scope = group) {
  part    = sum(parts)
  centred = part - mean(part, over = scope, singleton = 0)
  normed  = where(norm, centred / (std(part, over = scope, singleton = 1) + 1e-6), centred)
  summed  = sum(weights * normed, over = components)
  white   = summed - mean(summed, over = batch, weight = length)
  spread  = std(white, over = batch, weight = length)
  episode = where(length > 0, white / sqrt(spread * spread + 1e-8), 0)
}

# REINFORCE++ of verl 0.9.1 at its gamma of 1: every turn gets the rewards from it on
advantage reinforce_pp() {
  togo    = discounted(reward, 1)
  centred = togo - mean(togo, over = batch, weight = tokens)
  spread  = std(centred, over = batch, weight = tokens)
  turn    = where(tokens > 0, centred / sqrt(spread * spread + 1e-8), 0)
}

# pass@k training of verl 0.9.1; a group of one is an error
advantage grpo_passk(norm = true, scope = group) {
  total   = sum(reward)
  require = count(total, over = scope) - 1
  lead    = max(total - max(total, over = others(scope)), 0)
  episode = where(norm, lead / (std(total, over = scope) + 1e-6), lead)
}

# GPG of verl 0.9.1 at its f_norm of 1; a group of one keeps its return
advantage gpg(scope = group) {
  total   = sum(reward)
  earned  = mean(where(total != 0, 1, 0), over = batch)
  episode = where(earned > 0, (total - mean(total, over = scope, singleton = 0)) / earned, 0)
}
