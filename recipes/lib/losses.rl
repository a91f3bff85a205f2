# Losses as expressions: the service's own, and those of papers. `import "lib/losses.rl"`, then
# `loss = sapo()`. How they are written, and what they cost: docs/losses.md.
#
# There is one ratio here, of the trainer to the sampler. Papers that keep two, one to the policy at
# the start of the step and one between two engines, have their product in it.

# -- What the service computes itself. `explain` says so, and its own loss is used. --

# REINFORCE. The service's cross_entropy, with the advantages as weights.
loss log_likelihood {
  token = -adv * logp
}

# The policy gradient corrected for what the sampler was. The service's importance_sampling.
loss importance {
  token = -ratio * adv
}

# PPO's clipped surrogate (arXiv 1707.06347); DAPO's clip-higher is high = 1.28 (arXiv 2503.14476).
loss clipped_surrogate(low = 0.8, high = 1.2) {
  token = -min(ratio * adv, clip(ratio, low, high) * adv)
}

# CISPO (MiniMax-M1, arXiv 2506.13585): the ratio is a weight, and the weight is clipped.
loss clipped_weight(low = 0.0, high = 4.0) {
  token = -stop(clip(ratio, low, high)) * adv * logp
}

# DRO (arXiv 2405.19107) as Tinker has it: a quadratic pull to the sampler, over sampled tokens.
loss quadratic_pull(beta = 0.05) {
  drift = logp - logq
  token = beta / 2 * drift * drift - adv * logp
}

# GSPO-token (arXiv 2507.18071): one ratio for the sequence, with a gradient on each token.
loss shared_ratio(low = 0.9997, high = 1.0004) {
  s     = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))
  token = -min(s * adv, clip(s, low, high) * adv)
}

# GSPO (arXiv 2507.18071): one ratio and one advantage for the sequence. It is the mean over tokens
# of the one above, where all tokens of a sequence have the same advantage.
loss sequence_ratio(low = 0.9997, high = 1.0004) {
  s        = exp(mean(logp - logq))
  sequence = -min(s * mean(adv), clip(s, low, high) * mean(adv))
}

# -- What papers define --

# Dual clip (arXiv 1912.09729; verl 0.9.1 has most = 3): for A < 0 PPO bounds no large ratio.
loss dual_clip(low = 0.8, high = 1.2, most = 3.0) {
  surrogate = min(ratio * adv, clip(ratio, low, high) * adv)
  token     = -where(adv < 0, max(surrogate, most * adv), surrogate)
}

# SAPO (arXiv 2511.20347): a soft gate around the ratio 1 instead of a clip. verl 0.9.1 aggregates
# it by seq_mean_token_mean().
loss sapo(tau_pos = 1.0, tau_neg = 1.05) {
  tau   = where(adv > 0, tau_pos, tau_neg)
  gate  = 4 / tau * sigmoid(tau * (ratio - 1))
  token = -gate * adv
}

# GMPO (arXiv 2507.20673): the geometric mean of the ratios, each clipped where it has gone too far
# its advantage's way; the range is one of log ratios. verl 0.9.1's geo_mean.
loss gmpo(low = -0.4, high = 0.4) {
  drift    = logp - logq
  held     = where(adv > 0, min(drift, high), max(drift, low))
  sequence = -exp(mean(held)) * mean(adv)
}

# Truncated importance sampling (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You
# Off-Policy RL Training"; verl 0.9.1's rollout correction has most = 2), each token for itself. It
# is clipped_weight with low = 0.
loss truncated_importance(most = 2.0) {
  token = -stop(min(ratio, most)) * adv * logp
}

# The same with one weight for the sequence, the product of its ratios.
loss truncated_sequence_importance(most = 2.0) {
  weight = stop(min(exp(sum(logp - logq)), most))
  token  = -weight * adv * logp
}

# IcePop (Ring-1T, arXiv 2510.18855): a token whose ratio leaves the range is masked, not clipped.
loss icepop(low = 0.5, high = 5.0) {
  kept  = where(ratio >= low, where(ratio <= high, ratio, 0), 0)
  token = -stop(kept) * adv * logp
}

# DPPO with the binary total variation (arXiv 2602.04879): a token is masked where its probability,
# not its ratio, has gone too far its advantage's way. verl 0.9.1's dppo_tv, whose clip_ratio is 0.2,
# without its bound of e⁻²⁰ below the ratio.
loss dppo_tv(low = 0.2, high = 0.2, most = 20.0) {
  moved = exp(logp) - exp(logq)
  kept  = where(adv > 0, where(moved <= high, 1, 0), where(moved >= -low, 1, 0))
  token = -stop(kept * min(ratio, most)) * adv * logp
}

# The same with the binary Kullback-Leibler divergence. verl 0.9.1's dppo_kl.
loss dppo_kl(low = 0.2, high = 0.2, most = 20.0) {
  p     = exp(logp)
  q     = exp(logq)
  apart = q * (logq - logp) + (1 - q) * log((1 - q + 1e-8) / (1 - p + 1e-8))
  up    = where(p <= q, 1, where(apart <= high, 1, 0))
  down  = where(p >= q, 1, where(apart <= low, 1, 0))
  token = -stop(where(adv > 0, up, down) * min(ratio, most)) * adv * logp
}

# Clip-Cov (arXiv 2505.22617): of the tokens whose covariance of logprob and advantage, centred over
# the batch, lies in a range, a few are drawn and lose their gradient, so that the entropy falls more
# slowly. With `logq` the logprobs are the sampler's; write `logp` in both places for the trainer's at
# the start of the step, which the paper has, after a forward pass. verl 0.9.1 takes the statistics
# of each micro-batch, and leaves out what PPO clips anyway.
loss clip_cov(share = 0.0002, least = 1.0, most = 5.0, low = 0.8, high = 1.2) {
  covariance = (logq - batch_mean(logq)) * (adv - batch_mean(adv))
  dropped    = batch_draw(where(covariance > least, where(covariance < most, 1, 0), 0), share)
  surrogate  = min(ratio * adv, clip(ratio, low, high) * adv)
  token      = -(1 - dropped) * surrogate
}

# KL-Cov (arXiv 2505.22617): the tokens with the largest covariance are held to the sampler instead.
# The paper has share = 0.002 for 7B and 0.0002 for 32B; nothing bounds the ratio of the others. It has
# |log p - log q|, whose slope of a fresh batch is the sign of what rounding leaves; below 0.001 this
# one goes to 0 smoothly.
loss kl_cov(share = 0.0002, coef = 1.0) {
  covariance = (logq - batch_mean(logq)) * (adv - batch_mean(adv))
  held       = batch_top(covariance, share)
  apart      = logp - logq
  token      = coef * held * apart * apart / (abs(apart) + 0.001) - ratio * adv
}

# -- PPO and a term of its own: a pattern to copy --

# k3, the estimate of the KL divergence from the reference (J. Schulman, "Approximating KL
# divergence") in the loss, as in GRPO (arXiv 2402.03300). It needs a reference.
loss ppo_k3(low = 0.8, high = 1.2, coef = 0.001) {
  surrogate = min(ratio * adv, clip(ratio, low, high) * adv)
  apart     = ref - logp
  token     = coef * (exp(apart) - apart - 1) - surrogate
}

# An entropy bonus from the sampled tokens alone. The entropy is -Σ_v p log p, of which a sampled
# token shows one term: its gradient, ratio (log p + 1), is that of the entropy on average. The bonus
# log p alone would have none on average. The exact entropy needs all logits, which no service
# returns.
loss ppo_entropy(low = 0.8, high = 1.2, coef = 0.001) {
  surrogate = min(ratio * adv, clip(ratio, low, high) * adv)
  token     = coef * ratio * logp - surrogate
}
