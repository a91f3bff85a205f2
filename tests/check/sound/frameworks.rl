# Environments of other frameworks, in a file beside the recipe: nothing of them is imported.
model policy { base = "tiny" lora_rank = 4 }

env words = verifiers("frameworks.py", args = { letter = "e" }, weights = { letters = 0.5 })
  |> rollouts(max_turns = 2)
  |> reward(letters - 0.01 * tokens)

env sums = gem("rg:chain_sum") |> chat(instruction = "Answer in \\boxed{}.") |> mcp_tools("http://127.0.0.1:8000/mcp", per = episode)

env shell = harbor("../../../recipes/data/harbor/*", turns = 4)

env guess = openenv("http://127.0.0.1:8000", encode = "frameworks.py:action", sessions = 8)

train main {
  model     = policy
  env       = words + sums + shell + guess
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 1
}
