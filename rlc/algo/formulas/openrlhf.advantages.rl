# Advantages of OpenRLHF 0.11.2 (experience_maker.py).

# group_norm of OpenRLHF 0.11.2; a group of one is an error
advantage grpo(scope = group) {
  total   = sum(reward)
  require = count(total, over = scope) - 1
  centred = total - mean(total, over = scope)
  episode = centred / (std(total, over = scope) + 1e-9)
}

# REINFORCE++-baseline of OpenRLHF 0.11.2; a group of one is an error
advantage reinforce_pp_baseline(scope = group) {
  total    = sum(reward)
  require  = count(total, over = scope) - 1
  relative = total - mean(total, over = scope)
  centred  = relative - mean(relative, over = batch, weight = length)
  spread   = std(centred, over = batch, weight = length, ddof = 0)
  episode  = where(length > 0, centred / max(spread, 1e-4), 0)
}

# REINFORCE++ of OpenRLHF 0.11.2 at its gamma of 1: every turn gets the whole return
advantage reinforce_pp() {
  total   = sum(reward)
  centred = total - mean(total, over = batch, weight = length)
  spread  = std(centred, over = batch, weight = length, ddof = 0)
  episode = where(length > 0, centred / max(spread, 1e-4), 0)
}

# flash_reinforce of OpenRLHF 0.11.2: return less the batch's mean
advantage flash_reinforce() {
  total   = sum(reward)
  episode = total - mean(total, over = batch)
}
