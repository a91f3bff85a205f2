# The first recipe to run: a tiny chat model learns to guess a number from "higher" and "lower".
# Everything happens on this machine, without a key and without a download.
#
#     rlc run recipes/quickstart.rl

param learning_rate: float = 3e-4  # rlc run … --set learning_rate=1e-3

model policy {
  base      = "tiny"  # 0.8M parameters, comes with rlc
  lora_rank = 8
}

# A game of several turns. chat() hands the observations over as a chat: each turn extends the
# tokens before it, so a whole game is one training sequence.
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)  # 16 numbers to guess, each guessed at 8 times
  sampling  = sample(max_tokens = 16)
  advantage = grpo()  # better or worse than the other 7 at that number
  loss      = importance_sampling()
  optimizer = adam(learning_rate)
  steps     = 50
  save      = every(25)
}
