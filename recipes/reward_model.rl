# A reward model without a head: a preference stage learns which replies are better, and what it has
# learnt, its implicit reward, trains another model, for as long as that stays near where it began. In
# ten steps the reward of the environment, which that model is not told, goes from 0.50 to 0.62.

model policy {
  base      = "tiny"
  lora_rank = 8
}

model reader {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward")
  |> chat(instruction = "Put your answer inside \\boxed{}.")
  |> rollouts(max_tokens = 16)

preference align {
  model     = reader
  data      = preferred(reader, env = spell, n = 192, samples = 4)
  loss      = dpo(beta = 0.1)
  optimizer = adam(1e-3)
  batch     = 16
  epochs    = 2
}

judge better = implicit_reward(align)

train main {
  model     = policy
  env       = rows("data/spell_pairs.jsonl") |> judged(better)  # its prompts alone
  batch     = groups(16, group_size = 4)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference(policy.base, coef = 0.1)
  optimizer = adam(1e-3)
  steps     = 10
}

eval heldout {
  model   = main
  env     = spell
  samples = 4
  first   = true
  every   = 5
}

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): unlustily"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{ylitsulnu}") == 1,
    reward("\\boxed{unlustily}") < 0.5,
    reward("") == 0,
    turns("\\boxed{ylitsulnu}") == 1,
  ]
}

test the_plan {
  expect = [
    align.steps == 24,
    align.epochs == 2,
    align.batch == 16,
    align.loss.name == "dpo",
    align.data.env.id == "rg:spell_backward",
    align.data.env.rollouts.group == 4,
    align.data.env.rollouts.max_tokens == 16,
    align.data.count == 192,
    align.data.model.model.base == "tiny",
    align.data.model.model.lora_rank == 8,
    align.data.samples == 4,
    align.loss.config.beta == 0.1,
    main.steps == 10,
    main.batch.count == 16,
    main.batch.size == 4,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.kl.reference.model.base == "tiny",
    main.kl.reference.model.lora_rank == 8,
    main.kl.coef == 0.1,
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    heldout.samples == 4,
    heldout.every == 5,
    heldout.first == true,
  ]
}
