# Advantages of AReaL 1.0.4 (areal/utils/data.py, Normalization).

# the reward normalisation of AReaL 1.0.4: a mean and a deviation, each over its own level
advantage normalize(
  mean_level = batch, std_level = batch, leave_one_out = false, unbiased = true, eps = 1e-5
) {
  total   = sum(reward)
  centred = where(mean_level == none, total, where(leave_one_out,
    total - mean(total, over = others(mean_level), singleton = 0),
    total - mean(total, over = mean_level)))
  episode = where(std_level == none, centred, where(unbiased,
    centred / (rms(centred, over = std_level, singleton = 1) + eps),
    centred / (rms(centred, over = std_level, ddof = 0, singleton = abs(centred)) + eps)))
}
