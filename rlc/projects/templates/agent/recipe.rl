# PROJECT_NAME: a model learns to serve the agent in agent.py. Takes about a minute on two cores.

model policy {
  base      = "tiny"  # included in rlc, 0.8M parameters; `rlc catalog model` lists others
  lora_rank = 8
}

# Each episode is one run of the agent, with an endpoint of its own that the model answers.
env words = agent("agent.py:solve", tasks = rows("data/words.jsonl"))

train main {
  model     = policy
  env       = words
  batch     = groups(4, group_size = 16)  # 4 tasks a step, 16 runs of the agent on each
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(3e-3)
  steps     = 24
}

# `rlc test` runs these.
test a_good_word_ends_it {
  env    = words
  task   = { prompt = "Write a word with many e.", letter = "e" }
  expect = [
    reward("eel") > 0.6,
    turns("eel") == 1,
    reward("moon", "eel") == 0.9 * 2 / 3,
    turns("moon", "eel") == 2,
    reward("", "") == 0,
  ]
}

test the_run_stays_small {
  expect = [job.cost.high == $0, main.rollouts == 1_536]
}
