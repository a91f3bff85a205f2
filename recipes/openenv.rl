# An OpenEnv server: its environment is played over a WebSocket, a session an episode.
#
#     python -m my_env.server.app              # or `docker run -p 8000:8000 …`
#     pip install 'rlc[openenv]'
#     rlc run recipes/openenv.rl
#
# An action of this environment has the field `message`, an observation the field `text`.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = openenv("http://127.0.0.1:8000", text = "message", show = "text", sessions = 16)
  |> rollouts(max_turns = 4)
  |> reward(sum, nonterminal = 0.0)

train main {
  model     = policy
  env       = guess
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 30
  on_error  = retry(2) then drop
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 30,
    main.batch.count == 8,
    main.batch.size == 8,
    main.sampling.max_tokens == 8,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.guess.args.text == "message",
    main.envs.guess.args.show == "text",
    main.envs.guess.args.sessions == 16,
    main.envs.guess.rollouts.max_turns == 4,
    main.envs.guess.reward.reduce == "sum",
    main.envs.guess.reward.nonterminal == 0,
  ]
}

test what_it_plays {
  expect = [
    main.envs.guess.id == "http://127.0.0.1:8000",
    main.envs.guess.rollouts.group == 8,
    main.envs.guess.rollouts.max_tokens == 8,
  ]
}
