# Advantages of GEM 0.1.0's trainer for OAT.

# return batch normalisation of GEM 0.1.0's trainer for OAT, with the biased deviation
advantage rebn(gamma = 1.0) {
  togo    = discounted(reward, gamma)
  centred = togo - mean(togo, over = batch)
  turn    = centred / (std(centred, over = batch, ddof = 0) + 1e-9)
}
