# Two environments on an OpenReward server of one's own, in one job: a game with a tool, which the
# tiny model first has to learn to call, and a word to spell backward in a plain message.
#
#     python examples/openreward_games.py &      # the server; needs no key
#     rlc run recipes/openreward_games.rl

model policy {
  base      = "tiny"
  lora_rank = 32
}

env guess = openreward("Games/Guess", base_url = "http://127.0.0.1:8462", sessions = 16)
  |> reward(sum, nonterminal = 0.0)

env reverse = openreward("Games/Reverse", base_url = "http://127.0.0.1:8462", sessions = 16)

# Somebody who calls the tool as it should be, and guesses at random.
sft calls {
  model     = policy
  data      = rows("recipes/data/openreward_games.jsonl")
  batch     = 8
  steps     = 200
  optimizer = adam(1e-2, schedule = linear(warmup = 5))
}

train main {
  model     = calls
  env       = 1 * guess + 1 * reverse
  batch     = groups(8, of = 8)
  sampling  = sample(max_tokens = 72)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(2e-4)
  steps     = 40
  on_error  = retry(2) then drop
}
