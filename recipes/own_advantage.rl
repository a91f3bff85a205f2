# An advantage of one's own: an expression over episodes, from the names that docs/advantages.md has.
# `rlc explain --full` prints it as a formula.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

# Leave-one-out over the spread of the batch; a correct reply that is longer than the correct ones of
# its group are on average gets less, the more of the group are correct.
advantage brief(price = 0.2, eps = 1e-6) {
  total   = sum(reward)
  right   = where(total >= 1, 1, 0)
  passed  = mean(right, over = group)
  usual   = mean(length, over = group, weight = right)
  excess  = clip((length - usual) / max(usual, 1), -1, 1)
  paid    = total - price * passed * right * excess
  centred = paid - mean(paid, over = others)
  episode = centred / (std(paid, over = batch) + eps)
}

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = brief()
  loss      = importance_sampling()
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
    main.loss.name == "importance_sampling",
    main.advantage.name == "brief",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
  ]
}
