# A sweep: three learning rates and two advantage schemes, each with two seeds, compared by tasks that
# the training never sees. `rlc sweep recipes/learning_rates.rl` runs it, `rlc run` runs the job alone.

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

advantage scheme = grpo()

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = scheme
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 20
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 32
  samples = 4
  every   = 5
  metrics = [mean_reward(), pass_at(1)]
}

sweep rates {
  of     = main
  over   = { learning_rate = [3e-4, 1e-3, 3e-3], scheme = [grpo(), rloo()] }
  seeds  = 2
  metric = heldout.mean_reward
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
    main.steps == 20,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "scheme",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    heldout.tasks == 32,
    heldout.samples == 4,
    heldout.every == 5,
  ]
}
