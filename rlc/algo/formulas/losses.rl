# Losses of the training service (Tinker, SDK 0.38). It sums over the sampled tokens of a batch and
# averages nothing; clip_low and clip_high are bounds of the ratio itself, not distances from 1.

# policy gradient, corrected for what the sampler's weights were
loss importance_sampling {
  token = -ratio * adv
}

# importance sampling that stops rewarding a ratio outside the clip range (arXiv 1707.06347)
loss ppo(clip_low = 0.8, clip_high = 1.2) {
  token = -min(ratio * adv, clip(ratio, clip_low, clip_high) * adv)
}

# log-likelihood weighted by a clipped ratio; no token loses its gradient (arXiv 2506.13585)
loss cispo(clip_low = 0.0, clip_high = 4.0) {
  token = -stop(clip(ratio, clip_low, clip_high)) * logp * adv
}

# direct reward optimisation: a quadratic pull towards the sampler (arXiv 2405.19107)
loss dro(beta = 0.05) {
  drift = logp - logq
  token = -(logp * adv - beta / 2 * (drift * drift))
}

# PPO with one ratio for the whole sequence (arXiv 2507.18071)
loss gspo(clip_low = 0.9997, clip_high = 1.0004) {
  s     = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))
  token = -min(s * adv, clip(s, clip_low, clip_high) * adv)
}

# log-likelihood weighted by the advantage: the policy gradient without a ratio
loss cross_entropy {
  token = -adv * logp
}

# REINFORCE kept close to the sampler, for rollouts of older weights (alpha on Tinker)
loss stable_reinforce(kl_coeff = none) {
  drift = logp - logq
  token = -(logp * adv - kl_coeff / 2 * (drift * drift))
}
