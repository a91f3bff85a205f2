# Speech to text by reward, less word errors: tinker-cookbook's `audio.asr.rl_train`, with its values.

model policy {
  base      = "thinkingmachines/Inkling"
  lora_rank = 32
}

env speech = cookbook(
  "tinker_cookbook.recipes.audio.asr.env:AudioASRRLDatasetBuilder",
  args = {
    groups_per_batch    = 8
    n_train             = 64
    seed                = 0
    shuffle_buffer_size = 1_000
    audio_cache_dir     = "~/.cache/tinker-cookbook/audio-asr-clips"
  },
)

train main {
  model     = policy
  env       = speech
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 8192, temperature = 1.0)
  advantage = cookbook.center()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 8
  save      = every(8, ttl = 7d)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 8,
    main.batch.count == 8,
    main.batch.size == 8,
    main.sampling.max_tokens == 8_192,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 1e-5,
    main.model.base == "thinkingmachines/Inkling",
    main.model.lora_rank == 32,
    main.envs.speech.args.args.groups_per_batch == 8,
    main.envs.speech.args.args.n_train == 64,
    main.envs.speech.args.args.seed == 0,
    main.envs.speech.args.args.shuffle_buffer_size == 1_000,
    main.envs.speech.args.args.audio_cache_dir == "~/.cache/tinker-cookbook/audio-asr-clips",
    main.save.every == 8,
  ]
}

test what_it_plays {
  expect = [
    main.envs.speech.rollouts.group == 8,
    main.envs.speech.rollouts.temperature == 1,
    main.envs.speech.rollouts.max_tokens == 8_192,
  ]
}
