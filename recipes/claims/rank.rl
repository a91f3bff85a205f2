# Claim: the rank of the LoRA adapter matters little in reinforcement learning, down to rank 1.
# Source: Schulman et al., "LoRA Without Regret" (Thinking Machines, 2025): an episode carries about one bit, so
# small adapters hold what policy gradients teach.
# Smaller here: a tiny model and words to spell backward, in place of 8B models and mathematics. The
# smaller the model, the fewer weights a rank has, so rank 1 may be too little here where it was not there.
#
#   rlc sweep recipes/claims/rank.rl

model policy {
  base      = "tiny"
  lora_rank = 32
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train main {
  model     = policy
  env       = spell
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}

eval heldout {
  model   = main
  env     = spell
  tasks   = 64
  samples = 2
  metrics = [pass_at(1)]
}

sweep ranks {
  of     = main
  over   = { policy.lora_rank = [1, 32] }
  seeds  = 5
  metric = heldout.pass_at_1
}

claim rank_matters_little {
  of    = ranks
  that  = at(policy.lora_rank == 1) >= at(policy.lora_rank == 32) - 5%
  level = 95%
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): unsauced"),
    reward("\\boxed{decuasnu}") == 1,
    reward("\\boxed{unsauced}") < 0.5,
    reward("") == 0,
  ]
}

test the_plan {
  expect = [
    main.steps == 20,
    main.batch.count == 8,
    main.batch.size == 8,
    main.loss.name == "importance_sampling",
    main.optimizer.learning_rate == 1e-3,
    heldout.tasks == 64,
    heldout.samples == 2,
  ]
}
