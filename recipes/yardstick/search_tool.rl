# Questions on several facts with a search tool: tinker-cookbook's `search_tool` (Search-R1).
#
# Needs the cookbook's index of Wikipedia, served by Chroma, and a key for its embeddings.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

env search = cookbook(
  "tinker_cookbook.recipes.search_tool.search_env:SearchR1DatasetBuilder",
  args = {
    batch_size             = 512
    chroma_host            = "localhost"
    chroma_port            = 8000
    chroma_collection_name = "wiki_embeddings"
    seed                   = 2
  },
)

train main {
  model     = policy
  env       = search
  batch     = groups(512, group_size = 8)
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_episode_tokens = 32_768)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 331  # the 169,615 questions once
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 331,
    main.batch.count == 512,
    main.batch.size == 8,
    main.sampling.max_tokens == 1_024,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.search.args.args.batch_size == 512,
    main.envs.search.args.args.chroma_host == "localhost",
    main.envs.search.args.args.chroma_port == 8_000,
    main.envs.search.args.args.chroma_collection_name == "wiki_embeddings",
    main.envs.search.args.args.seed == 2,
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.search.rollouts.group == 8,
    main.envs.search.rollouts.temperature == 1,
    main.envs.search.rollouts.max_tokens == 1_024,
  ]
}
