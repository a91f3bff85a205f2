# Chats of several turns, of which only the last reply is imitated, before a game.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

sft talk {
  model     = policy
  data      = chats("data/chats.jsonl", train_on = last)
  batch     = 2
  optimizer = adam(1e-3)
  steps     = 7
}

train main {
  model     = talk
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = dr_grpo()
  loss      = importance_sampling()
  aggregate = seq_mean_token_sum_norm(length = 64)
  optimizer = adam(1e-3)
  steps     = 50
}
