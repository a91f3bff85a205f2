# Two players in a group are each other's environment, so groups have two members and no more.

model policy {
  base = "Qwen/Qwen3.5-4B"
}

env games = cookbook(
  "tinker_cookbook.recipes.multiplayer_rl.text_arena.env:TwoPlayerTextArenaDatasetBuilder",
  args = {
    batch_size           = 64
    num_train_datapoints = 6_400
    num_test_datapoints  = 64
    game_name            = "TicTacToe-v0"
  },
  self_play = true,
)

train main {
  model     = policy
  env       = games
  batch     = groups(64, group_size = 2)
  sampling  = sample(max_tokens = 1_024)
  advantage = cookbook.center(drop_constant = true)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}

eval matches {
  model   = main
  env     = games
  tasks   = 32
  samples = 2
  metrics = mean_reward()
}
