# A loss of one's own: an expression over the sampled tokens, from the names that docs/losses.md has.
# `rlc explain --full` prints it as a formula with its derivative; more of them: lib/losses.rl.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

# SAPO's soft gate around the ratio 1 (arXiv 2511.20347), held close to where it started (k3).
loss gated(tau_pos = 1.0, tau_neg = 1.05, coef = 0.001) {
  tau   = where(adv > 0, tau_pos, tau_neg)
  gate  = 4 / tau * sigmoid(tau * (ratio - 1))
  away  = ref - logp
  token = -gate * adv + coef * (exp(away) - away - 1)
}

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8, updates = 2)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  aggregate = token_mean()
  loss      = gated(tau_neg = 1.2)
  kl        = reference(policy.base, coef = 0)  # only asked for its logprobs
  optimizer = adam(1e-3)
  steps     = 40
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): unsauced"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{decuasnu}") == 1,
    reward("\\boxed{unsauced}") < 0.5,
    reward("") == 0,
    turns("\\boxed{decuasnu}") == 1,
  ]
}

test the_plan {
  expect = [
    main.steps == 40,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "gated",
    main.advantage.name == "grpo",
    main.kl.reference.model.base == "tiny",
    main.kl.reference.model.lora_rank == 8,
    main.kl.coef == 0,
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
  ]
}
