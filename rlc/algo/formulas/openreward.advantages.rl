# Advantages of OpenReward's trainer (November 2026).

# the default of OpenReward's trainer (Nov 2026): groups with a deviation below 1e-8 get 0
advantage centered_normalized(scope = group) {
  total   = sum(reward)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  keep    = where(count(total, over = task(scope)) > 1, spans, 1)
  spread  = std(total, over = scope)
  episode = where(spread > 1e-8, (total - mean(total, over = scope)) / spread, 0)
}

# OpenReward's trainer (Nov 2026) without the deviation; groups of equals are left out
advantage centered(scope = group) {
  total   = sum(reward)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  keep    = where(count(total, over = task(scope)) > 1, spans, 1)
  episode = total - mean(total, over = scope)
}

# OpenReward's trainer (Nov 2026) without a baseline; groups of equals are left out
advantage direct() {
  total   = sum(reward)
  spans   = max(total, over = group) - min(total, over = group)
  keep    = where(count(total, over = group) > 1, spans, 1)
  episode = total
}
