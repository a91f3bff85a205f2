# One skill after the other, each from demonstrations of its own: tinker-cookbook's
# `sdft.run_continual_learning`.

model policy {
  base      = "Qwen/Qwen3.5-4B"  # "Qwen/Qwen3-4B-Instruct-2507" there, which is retired
  lora_rank = 128
}

# A few rows of our own, in the folders of the paper's data.
env tools = rows("continual_learning/tooluse_data/train_data/state.json")
env science = rows("continual_learning/science_data/train_data/state.json", prompt = "messages")

train first {
  model     = policy
  env       = tools
  teacher   = forward_kl(policy, demonstration = "golden_response", top_k = 20)
  batch     = groups(128, group_size = 1)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  loss      = cross_entropy()
  optimizer = adam(5e-4)
  steps     = 1  # of the paper's data one for each 128 rows
}

train second = first {
  model   = first
  env     = science
  teacher = forward_kl(policy, demonstration = "output_text", top_k = 20)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    first.steps == 1,
    first.batch.count == 128,
    first.batch.size == 1,
    first.sampling.max_tokens == 2_048,
    first.sampling.temperature == 1,
    first.loss.name == "cross_entropy",
    first.advantage.name == "none",
    first.optimizer.learning_rate == 0.0005,
    first.model.base == "Qwen/Qwen3.5-4B",
    first.model.lora_rank == 128,
    second.steps == 1,
    second.batch.count == 128,
    second.batch.size == 1,
    second.sampling.max_tokens == 2_048,
    second.sampling.temperature == 1,
    second.loss.name == "cross_entropy",
    second.advantage.name == "none",
    second.optimizer.learning_rate == 0.0005,
    second.model.base == "Qwen/Qwen3.5-4B",
    second.model.lora_rank == 128,
    second.envs.science.args.prompt == "messages",
  ]
}

test what_it_plays {
  expect = [
    first.envs.tools.rollouts.group == 1,
    first.envs.tools.rollouts.temperature == 1,
    first.envs.tools.rollouts.max_tokens == 2_048,
    second.envs.science.rollouts.group == 1,
    second.envs.science.rollouts.temperature == 1,
    second.envs.science.rollouts.max_tokens == 2_048,
  ]
}
