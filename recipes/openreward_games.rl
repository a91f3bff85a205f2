# A game with a tool, on an OpenReward server of one's own. The tiny model first imitates calls with
# random guesses; then the reward teaches it which guesses to make.
#
#     python examples/openreward_games.py &      # the server; needs no key
#     rlc run recipes/openreward_games.rl

model policy {
  base      = "tiny"
  lora_rank = 32
}

env guess = openreward("Games/Guess", base_url = "http://127.0.0.1:8462", sessions = 16)
  |> reward(sum, nonterminal = 0.0)

# Somebody who calls the tool as it should be, and guesses at random.
sft calls {
  model     = policy
  data      = rows("recipes/data/openreward_games.jsonl")
  batch     = 8
  steps     = 100
  optimizer = adam(1e-2, schedule = linear(warmup = 5))
}

train main {
  model     = calls
  env       = guess
  batch     = groups(6, of = 8)
  sampling  = sample(max_tokens = 72)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 25
  on_error  = retry(2) then drop
}
