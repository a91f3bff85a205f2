# Streamed in parts of a fixed order, so that it repeats itself to the bit: GRPO within groups,
# and a plain sum over tokens.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env press = openreward(
  "Games/Guess",
  base_url = "http://127.0.0.1:8462",
  sessions = 12,
  tools = ["press"],
)
  |> reward(sum, nonterminal = 0.0)

train main {
  model     = policy
  env       = press
  batch     = groups(12, group_size = 4)
  sampling  = sample(max_tokens = 72)
  advantage = grpo()
  loss      = importance_sampling()
  aggregate = token_sum()
  optimizer = adam(1e-3)
  overlap   = streamed(minibatches = 3, order = fixed)
  steps     = 50
  on_error  = stop
  track     = [openreward_rollouts("press")]
}
