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
