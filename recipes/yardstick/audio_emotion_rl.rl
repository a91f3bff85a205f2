# The tone of a voice and its words, by reward: tinker-cookbook's `audio.emotion.rl_train`.

model policy {
  base      = "thinkingmachines/Inkling"
  lora_rank = 32
}

env expresso = cookbook(
  "tinker_cookbook.recipes.audio.emotion.env:ExpressoRLDatasetBuilder",
  args = {
    data_dir     = "~/.cache/tinker-cookbook/audio-data/expresso_16khz"
    batch_size   = 16
    n_train      = 800
    seed         = 0
    emotion_coef = 0.5
    wer_coef     = 0.5
  },
)

train main {
  model     = policy
  env       = expresso
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 8192, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 50
  save      = every(20, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 50,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 8_192,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "thinkingmachines/Inkling",
    main.model.lora_rank == 32,
    main.envs.expresso.args.args.batch_size == 16,
    main.envs.expresso.args.args.n_train == 800,
    main.envs.expresso.args.args.seed == 0,
    main.envs.expresso.args.args.emotion_coef == 0.5,
    main.envs.expresso.args.args.wer_coef == 0.5,
    main.save.every == 20,
  ]
}

test what_it_plays {
  expect = [
    main.envs.expresso.rollouts.group == 8,
    main.envs.expresso.rollouts.temperature == 1,
    main.envs.expresso.rollouts.max_tokens == 8_192,
  ]
}
