# The shorter of two replies is better: tinker-cookbook's `preference.shorter`, with its values.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env who = rows("who_are_you.jsonl")
  |> compared(compare_with("shorter.py:shorter"), by = pairwise)
  |> reward(2 * total - 1 - truncated)

train main {
  model     = policy
  env       = who
  batch     = groups(32, group_size = 16)
  sampling  = sample(max_tokens = 64, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(3e-5)
  steps     = 32
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test the_shorter_reply_wins {
  env    = who
  expect = [
    reward("I am Qwen.") > reward("I am Qwen, a large language model."),
    reward("I am Qwen.") == 1,
    reward("I am Qwen, a large language model.") == -1,
    contains(prompt, "Who are you?"),
  ]
}

test the_plan {
  expect = [
    main.steps == 32,
    main.batch.count == 32,
    main.batch.size == 16,
    main.sampling.max_tokens == 64,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 3e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.save.every == 20,
  ]
}
