# Advantages that come with rlc: from the rewards of episodes to a number for each episode or turn.
# Those of other libraries are in files of their names.

# episode return less the group's mean, over the group's spread (arXiv 2402.03300)
advantage grpo(scale = std, eps = 1e-6, singleton = zero, constant = keep, scope = group) {
  total   = sum(reward)
  peers   = count(total, over = scope)
  centred = total - mean(total, over = scope, singleton = where(singleton == raw, 0, total))
  spread  = std(total, over = scope, singleton = where(singleton == raw, 1, 0))
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  differs = where(count(total, over = task(scope)) > 1, spans, 1)
  keep    = where(constant == drop, differs, 1) * where(singleton == drop, peers - 1, 1)
  require = where(singleton == error, peers - 1, 1)
  episode = where(scale == std, centred / (spread + eps), centred)
}

# episode return less the group's mean
advantage center(singleton = zero, constant = keep, scope = group) {
  total   = sum(reward)
  peers   = count(total, over = scope)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  differs = where(count(total, over = task(scope)) > 1, spans, 1)
  keep    = where(constant == drop, differs, 1) * where(singleton == drop, peers - 1, 1)
  require = where(singleton == error, peers - 1, 1)
  episode = total - mean(total, over = scope, singleton = where(singleton == raw, 0, total))
}

# episode return less the group's mean, not scaled (Dr. GRPO, arXiv 2503.20783)
advantage dr_grpo(scope = group) {
  total   = sum(reward)
  episode = total - mean(total, over = scope)
}

# episode return less the mean of the others in the group (arXiv 2402.14740)
advantage rloo(singleton = zero, constant = keep, scope = group) {
  total   = sum(reward)
  peers   = count(total, over = scope)
  spans   = max(total, over = task(scope)) - min(total, over = task(scope))
  differs = where(count(total, over = task(scope)) > 1, spans, 1)
  keep    = where(constant == drop, differs, 1) * where(singleton == drop, peers - 1, 1)
  require = where(singleton == error, peers - 1, 1)
  others  = mean(total, over = others(scope), singleton = where(singleton == raw, 0, total))
  episode = total - others
}

# episode return less a moving average for its role (arXiv 2506.24119)
advantage rae(decay = 0.95) {
  total   = sum(reward)
  episode = total - running(total, decay)
}

# the episode return itself, without a baseline
advantage reinforce() {
  episode = sum(reward)
}

# return of each turn, whitened over the batch's tokens (REINFORCE++, arXiv 2501.03262)
advantage reinforce_pp(gamma = 1.0) {
  togo    = discounted(reward, gamma)
  centred = togo - mean(togo, over = batch, weight = tokens)
  spread  = std(centred, over = batch, weight = tokens)
  turn    = where(tokens > 0, centred / sqrt(spread * spread + 1e-8), 0)
}

# episode return less the group's mean, whitened over the batch's tokens (arXiv 2501.03262)
advantage reinforce_pp_baseline(scope = group) {
  total    = sum(reward)
  relative = total - mean(total, over = scope, singleton = 0)
  centred  = relative - mean(relative, over = batch, weight = length)
  spread   = std(centred, over = batch, weight = length)
  episode  = where(length > 0, centred / sqrt(spread * spread + 1e-8), 0)
}

# discounted return of each turn, normalised over the batch (GEM, arXiv 2510.01051)
advantage rebn(gamma = 0.9, eps = 1e-9) {
  togo    = discounted(reward, gamma)
  centred = togo - mean(togo, over = batch)
  turn    = centred / (std(centred, over = batch) + eps)
}

# episode return less the group's length-weighted mean (arXiv 2505.23585)
advantage opo(scope = group) {
  total   = sum(reward)
  centred = total - mean(total, over = scope, weight = length)
  episode = where(length > 0, centred, 0)
}

# episode return less the group's mean, over that mean (arXiv 2602.02710)
advantage maxrl(eps = 1e-6, scope = group) {
  total   = sum(reward)
  average = mean(total, over = scope)
  episode = where(average > 0, (total - average) / (average + eps), 0)
}

# the group's best gets its lead over the second best, the others nothing (pass@k training, arXiv
# 2503.19595)
advantage grpo_passk(scale = std, eps = 1e-6, scope = group) {
  total   = sum(reward)
  lead    = max(total - max(total, over = others(scope)), 0)
  episode = where(scale == std, lead / (std(total, over = scope) + eps), lead)
}

# episode return less the group's mean, over the share of returns that are not 0 (arXiv 2504.02546)
advantage gpg(scope = group) {
  total   = sum(reward)
  earned  = mean(where(total != 0, 1, 0), over = batch)
  episode = where(earned > 0, (total - mean(total, over = scope)) / earned, 0)
}

# each component of the reward normalised within its group, their weighted sum over the batch (GDPO,
# arXiv 2601.05242)
advantage gdpo(scale = std, eps = 1e-6, singleton = zero, constant = keep, scope = group) {
  part    = sum(parts)
  peers   = count(part, over = scope)
  centred = part - mean(part, over = scope, singleton = where(singleton == raw, 0, part))
  spread  = std(part, over = scope, singleton = where(singleton == raw, 1, 0))
  normed  = where(scale == std, centred / (spread + eps), centred)
  spans   = max(part, over = task(scope)) - min(part, over = task(scope))
  differs = where(count(part, over = task(scope)) > 1, spans, 1)
  keep    = where(constant == drop, max(differs, over = components), 1)
            * where(singleton == drop, min(peers - 1, over = components), 1)
  require = where(singleton == error, min(peers - 1, over = components), 1)
  summed  = sum(weights * normed, over = components)
  white   = summed - mean(summed, over = batch)
  episode = white / (std(white, over = batch) + eps)
}
