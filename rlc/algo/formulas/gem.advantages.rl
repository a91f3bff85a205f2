# Advantages of GEM 0.1.0 (the training loop of its guide for Tinker).

# return batch normalisation of GEM 0.1.0; a single turn gets 0 where GEM gives NaN
advantage rebn(gamma = 0.9) {
  togo    = discounted(reward, gamma)
  centred = togo - mean(togo, over = batch)
  turn    = centred / (std(centred, over = batch) + 1e-9)
}
