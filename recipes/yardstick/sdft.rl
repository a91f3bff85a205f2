# Its own teacher, once it has seen a demonstration: tinker-cookbook's `sdft` (arXiv 2601.19897).

model policy {
  base      = "Qwen/Qwen3.6-35B-A3B"  # "Qwen/Qwen3.5-35B-A3B" there, which is retired
  lora_rank = 64
}

train main {
  model     = policy
  env       = rows("hub:tangqiaoyu/ToolAlpaca", prompt = "instruction")
  teacher   = forward_kl(policy, demonstration = "output", top_k = 20)
  batch     = groups(128, group_size = 1)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  loss      = cross_entropy()
  optimizer = adam(5e-4)
  steps     = 28
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 28,
    main.batch.count == 128,
    main.batch.size == 1,
    main.sampling.max_tokens == 2_048,
    main.sampling.temperature == 1,
    main.loss.name == "cross_entropy",
    main.advantage.name == "none",
    main.optimizer.learning_rate == 0.0005,
    main.model.base == "Qwen/Qwen3.6-35B-A3B",
    main.model.lora_rank == 64,
    main.envs.ToolAlpaca.args.prompt == "instruction",
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.ToolAlpaca.id == "hub:tangqiaoyu/ToolAlpaca",
    main.envs.ToolAlpaca.rollouts.group == 1,
    main.envs.ToolAlpaca.rollouts.temperature == 1,
    main.envs.ToolAlpaca.rollouts.max_tokens == 2_048,
  ]
}
