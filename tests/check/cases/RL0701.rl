# rlc check --import
model policy {
  base      = "tiny"
  lora_rank = 8
}

env away   = gem("game:GuessTheNumber-v0-easy") |> chat() |> mcp_tools("no-such-command --stdio")
env quoted = gem("game:GuessTheNumber-v0-easy") |> chat() |> mcp_tools("python 'calculator.py")
env there  = gem("game:GuessTheNumber-v0-easy") |> chat() |> mcp_tools("http://127.0.0.1:8000/mcp")

train main {
  model     = policy
  env       = away + quoted + there
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
