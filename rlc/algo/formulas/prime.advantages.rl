# Advantages of prime-rl 0.5 (prime_rl/orchestrator/advantage.py).

# the default of prime-rl 0.5: return less the group's mean, groups of equals left out
advantage center(drop_constant = true, scope = group) {
  total   = sum(reward)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  differs = where(count(total, over = task(scope)) > 1, spans, 1)
  keep    = where(drop_constant, differs * (count(total, over = scope) - 1), 1)
  episode = total - mean(total, over = scope)
}

# MaxRL of prime-rl 0.5; 0 where the mean is not positive, and for a group of one
advantage maxrl(scope = group) {
  total   = sum(reward)
  average = mean(total, over = scope)
  episode = where(average > 0, (total - average) / average, 0)
}
