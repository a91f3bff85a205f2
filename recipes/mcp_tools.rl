# Sums with a calculator: the tools of an MCP server, offered in an environment that has none.
#
#     pip install 'rlc[mcp]'
#     rlc run recipes/mcp_tools.rl --rehearse
#
# The server stands in data/calculator.py; any other is named by its command,
# `mcp_tools("uvx mcp-server-time")`, or by its address.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

env sums = gem("rg:chain_sum")
  |> mcp_tools("data/calculator.py", uses = 4, timeout = 10s)
  |> chat(
    instruction = "Compute with the tool, then put your answer in \\boxed{}.",
    history = sampled,  # the model sees its earlier thinking, and an episode is one sequence
  )

train main {
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 512)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
  on_error  = retry(2) then drop
  budget    = $40
}

# `rlc test` runs these.
test the_sum_counts {
  env    = sums
  expect = [
    contains(prompt, "8 + 7 + 5 + 6"),
    reward("\\boxed{26}") == 1,
    reward("\\boxed{25}") < 0.5,
    reward("") == 0,
    contains(prompt, "then put your answer in \\boxed{}."),
  ]
}

test the_plan {
  expect = [
    main.steps == 50,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 512,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
  ]
}
