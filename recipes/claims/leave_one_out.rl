# Claim: leaving a reply out of its own baseline (RLOO) beats the plain mean of its group.
# Source: Ahmadian et al., "Back to Basics" (2024, arXiv 2402.14740), who prefer RLOO to baselines of one value. The
# plain mean is the same estimator times 1 - 1/n for groups of n, as Liu et al. note ("Understanding R1-Zero-Like
# Training", 2025, arXiv 2503.20783, appendix A): a rate in disguise, and Adam divides by the size of the gradient.
# The gain of 5 % that is asked for is ours.
# Smaller here: a tiny model, words to spell backward, groups of 4, where the factor is far from 1.
#
#   rlc sweep recipes/claims/leave_one_out.rl

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

advantage plain_mean = returns() |> baseline(mean, over = group)

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 15
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 64
  samples = 2
  metrics = [pass_at(1)]
}

sweep baselines {
  of     = main
  over   = { main.advantage = [rloo(), plain_mean] }
  seeds  = 6
  metric = heldout.pass_at_1
}

claim leaving_out_is_better {
  of    = baselines
  that  = at(main.advantage == rloo()) >= at(main.advantage == plain_mean) + 5%
  level = 95%
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [reward("\\boxed{decuasnu}") == 1, reward("\\boxed{unsauced}") < 0.5, reward("") == 0]
}

test the_plan {
  expect = [
    main.steps == 15,
    main.batch.count == 16,
    main.batch.size == 4,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rloo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
  ]
}
