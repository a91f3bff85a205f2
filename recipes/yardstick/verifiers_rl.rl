# A package of the Environments Hub: tinker-cookbook's `verifiers_rl`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

train main {
  model     = policy
  env       = verifiers("primeintellect/reverse-text")
  batch     = groups(32, group_size = 8)
  sampling  = sample(max_tokens = 512, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 31
  save      = every(10, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 31,
    main.batch.count == 32,
    main.batch.size == 8,
    main.sampling.max_tokens == 512,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.save.every == 10,
  ]
}

test what_it_plays {
  expect = [
    main.envs.reverse_text.id == "primeintellect/reverse-text",
    main.envs.reverse_text.rollouts.group == 8,
    main.envs.reverse_text.rollouts.temperature == 1,
    main.envs.reverse_text.rollouts.max_tokens == 512,
  ]
}
