model policy {
  base      = "tiny"
  lora_rank = 8
}

env shop = openreward("Org/Shop", secrets = ["sk-proj-0a1b2c3d4e5f6g7h8i9j"])
env game = openreward("Org/Game", secrets = ["hunter2 and more", "OPENAI_API_KEY"])

# tml-0123456789abcdefghij stands in a comment
train main {
  model     = policy
  env       = shop + game
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
