# Questions on several facts with a search tool: the model may search up to five times.
#
#     rlc run recipes/gem_search_tool.rl --set search_server='"http://10.0.0.7:8000/retrieve"'
#
# The server is one of those that come with GEM (gem/tools/search_engine), or any that speaks as they
# do: a query with `topk` goes out, and passages come back, both as MessagePack. A run asks it once
# before it starts; what goes wrong later is shown to the model, as GEM does.

param search_server: string = "http://127.0.0.1:8000/retrieve"

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
}

# Only the answer is rewarded. An episode is one sequence, in which the model sees its own thinking.
env questions = gem("qa:HotpotQA")
  |> search_tool(url = search_server, uses = 5, top_k = 3, timeout = 5s)
  |> track()
  |> chat(history = sampled)

train main {
  model     = policy
  env       = questions
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 100
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 100,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3-8B",
    main.model.lora_rank == 32,
  ]
}

test what_it_plays {
  expect = [
    main.envs.questions.id == "qa:HotpotQA",
    main.envs.questions.wrappers.search_tool.args.url == "http://127.0.0.1:8000/retrieve",
    main.envs.questions.wrappers.search_tool.args.uses == 5,
    main.envs.questions.wrappers.search_tool.args.top_k == 3,
    main.envs.questions.wrappers.search_tool.args.timeout == 5s,
    main.envs.questions.rollouts.group == 8,
    main.envs.questions.rollouts.temperature == 1,
  ]
}
