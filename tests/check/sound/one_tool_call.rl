# A tool that may be called once: the history makes each turn a sequence of its own, and with two
# of them that costs little.

model policy {
  base = "Qwen/Qwen3-8B"
}

env maths = gem("math:Math12K", use_mp = false)
  |> python_tool(uses = 1, timeout = 10s, reward_use = 0, reward_success = 0, errors = last_line)
  |> concat_chat()
  |> template(no)

train main {
  model     = policy
  env       = maths
  batch     = turns(96, parallel = 48)
  sampling  = sample(max_tokens = 1_024)
  advantage = rebn(gamma = 1)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
