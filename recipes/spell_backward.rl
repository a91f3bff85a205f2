# One question, one answer: spell a word backwards. The single-turn sister of quickstart.rl, done
# in about 15 seconds.

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

# The reward is for what stands in \boxed{}, which the question never says: the instruction must.
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 40
  save      = every(20)
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
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.save.every == 20,
  ]
}
