# Claim: a short supervised warm-up before reinforcement learning ends higher than as many steps of
# reinforcement learning alone.
# Source: DeepSeek-AI, "DeepSeek-R1" (2025, arXiv 2501.12948, section 2.3): a cold start from some thousand examples.
# Smaller here: a tiny model, words to spell backward, 64 demonstrations. What the warm-up costs is not
# counted against it, as in the source; where the model can do the task already, it may add nothing.
#
#   rlc sweep recipes/claims/warm_start.rl

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

sft warmup {
  model     = policy
  data      = demonstrations(spell, n = 64)
  batch     = 16
  optimizer = adam(1e-3)
  steps     = 8
}

train main {
  model     = warmup
  env       = spell
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 10
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 64
  samples = 2
  metrics = [pass_at(1)]
}

sweep starts {
  of     = main
  over   = { main.model = [policy, warmup] }
  seeds  = 5
  metric = heldout.pass_at_1
}

claim warm_start_ends_higher {
  of    = starts
  that  = at(main.model == warmup) > at(main.model == policy)
  level = 95%
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [reward("\\boxed{decuasnu}") == 1, reward("\\boxed{unsauced}") < 0.5, reward("") == 0]
}

test the_plan {
  expect = [
    warmup.steps == 8,
    warmup.batch == 16,
    warmup.data.env.id == "rg:spell_backward",
    warmup.data.count == 64,
    warmup.optimizer.learning_rate == 0.001,
    warmup.model.base == "tiny",
    warmup.model.lora_rank == 8,
    main.steps == 10,
    main.batch.count == 8,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rloo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
  ]
}
