# A program that owns its loop: it asks the model as it would ask OpenAI, and calls tools itself. The
# tiny model first imitates calls with random arguments; then the agent's reward teaches it which
# button opens the doors.
#
#     rlc run recipes/agent.rl
#
# The agent stands in doors.py, and as a program for node in doors.mjs. docs/agents.md has the rest.

param learning_rate: float = 5e-4

model policy {
  base      = "tiny"
  lora_rank = 32
}

env doors = agent("doors:solve", tasks = rows("data/doors.jsonl"))

# Somebody who calls the tool as it should be, and presses at random. A call has 65 tokens here, and
# each has to be nearly certain before most calls can be read: hence the many steps.
sft calls {
  model     = policy
  data      = rows("data/openreward_games.jsonl")
  batch     = 8
  steps     = 300
  optimizer = adam(1e-2, schedule = linear(warmup = 5))
}

train main {
  model     = calls
  env       = doors
  batch     = groups(3, group_size = 16)
  sampling  = sample(max_tokens = 72)
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(learning_rate, schedule = linear())
  steps     = 30
  on_error  = retry(2) then drop
}

# `rlc test` runs these.
test the_second_button_opens {
  env    = doors
  expect = [
    reward("<tool_call>\n{\"name\": \"press\", \"arguments\": {\"n\": 2}}\n</tool_call>") == 1,
    reward(
      "<tool_call>\n{\"name\": \"press\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"press\", \"arguments\": {\"n\": 2}}\n</tool_call>",
    )
      == 0.5,
    reward("The second one.") == 0,
    turns("The second one.") == 1,
  ]
}

test the_plan {
  expect = [
    calls.steps == 300,
    calls.batch == 8,
    calls.data.path == "data/openreward_games.jsonl",
    calls.optimizer.learning_rate == 0.01,
    calls.optimizer.schedule.warmup == 5,
    calls.model.base == "tiny",
    calls.model.lora_rank == 32,
    main.steps == 30,
    main.batch.count == 3,
    main.batch.size == 16,
    main.sampling.max_tokens == 72,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rloo",
    main.optimizer.learning_rate == 0.0005,
    main.model.base == "tiny",
    main.model.lora_rank == 32,
    calls.optimizer.schedule.kind == "linear",
    main.optimizer.schedule.kind == "linear",
  ]
}
