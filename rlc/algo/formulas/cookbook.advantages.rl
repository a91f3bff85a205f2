# Advantages of tinker-cookbook 0.5.8 (tinker_cookbook/rl/data_processing.py).

# the one scheme of tinker-cookbook 0.5.8; a batch of equals only is skipped, where the cookbook keeps
# a group of it
advantage center(drop_constant = false, scope = group) {
  total   = sum(reward)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  differs = where(count(total, over = task(scope)) > 1, spans, 1)
  keep    = where(drop_constant, differs * (count(total, over = scope) - 1), 1)
  episode = total - mean(total, over = scope)
}
