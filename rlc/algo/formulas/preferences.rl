# Losses over preferences. chosen and rejected are the logprobs of the better and of the worse reply,
# summed over their tokens, …_ref those under the reference. Versions: the definitions of TRL 1.16
# (`DPOTrainer`, `KTOTrainer`, and `CPOTrainer` and `ORPOTrainer` of `trl.experimental`) and of
# `train_dpo` and `recipes/decisions` of tinker-cookbook 0.5.8.

# direct preference optimisation (arXiv 2305.18290; smoothing as in cDPO)
preference_loss dpo(beta = 0.1, label_smoothing = 0.0) {
  margin = beta * (chosen - chosen_ref - (rejected - rejected_ref))
  pair   = (1 - label_smoothing) * softplus(-margin) + label_smoothing * softplus(margin)
}

# identity preference optimisation: a margin to reach and no more (arXiv 2310.12036)
preference_loss ipo(beta = 0.1) {
  better = (chosen - chosen_ref) / chosen_length
  worse  = (rejected - rejected_ref) / rejected_length
  off    = better - worse - 1 / (2 * beta)
  pair   = off * off
}

# SimPO: mean logprobs a margin apart, without a reference (arXiv 2405.14734)
preference_loss simpo(beta = 2.0, gamma = 1.0) {
  margin = beta * (chosen / chosen_length - rejected / rejected_length) - gamma
  pair   = softplus(-margin)
}

# contrastive preference optimisation, without a reference (arXiv 2401.08417)
preference_loss cpo(beta = 0.1, alpha = 1.0, label_smoothing = 0.0) {
  margin = beta * (chosen - rejected)
  apart  = (1 - label_smoothing) * softplus(-margin) + label_smoothing * softplus(margin)
  pair   = apart + alpha * chosen_nll
}

# supervised training with an odds ratio, without a reference (arXiv 2403.07691)
preference_loss orpo(beta = 0.1) {
  likely   = chosen / chosen_length
  unlikely = rejected / rejected_length
  # At a logprob of 0 the odds would be infinite: near it they stay, and their gradient does not end.
  better   = likely + stop(min(likely, -1e-6) - likely)
  worse    = unlikely + stop(min(unlikely, -1e-6) - unlikely)
  ratio    = better - log(-expm1(better)) - (worse - log(-expm1(worse)))
  pair     = beta * softplus(-ratio) + chat_nll
}

# Brier's score of how probable the better one of two choices is, without a reference
preference_loss brier(beta = 1.0) {
  off  = sigmoid(-beta * (chosen - rejected))
  pair = 2 * off * off
}

# Kahneman-Tversky optimisation: replies that are good or bad (arXiv 2402.01306)
preference_loss kto(beta = 0.1, desirable = 1.0, undesirable = 1.0) {
  divergence = max(batch_mean(mismatched - mismatched_ref), 0)
  above      = beta * (logp - ref - divergence)
  reply      = where(good, desirable * sigmoid(-above), undesirable * sigmoid(above))
}
