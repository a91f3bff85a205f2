# Speech to text by imitation: tinker-cookbook's `audio.asr.sl_train`, with its values.

model policy {
  base      = "thinkingmachines/Inkling"
  lora_rank = 16
}

sft main {
  model     = policy
  data      = cookbook(
    "tinker_cookbook.recipes.audio.asr.env:AudioASRDatasetBuilder",
    args = {
      n_train             = 64
      n_eval              = 32
      max_length          = 8192
      seed                = 0
      shuffle_buffer_size = 1_000
      audio_cache_dir     = "~/.cache/tinker-cookbook/audio-asr-clips"
    },
  )
  heldout   = cookbook(
    "tinker_cookbook.recipes.audio.asr.env:AudioASRDatasetBuilder",
    args = {
      n_train             = 64
      n_eval              = 32
      max_length          = 8192
      seed                = 0
      shuffle_buffer_size = 1_000
      audio_cache_dir     = "~/.cache/tinker-cookbook/audio-asr-clips"
    },
    split = test,
  )
  every     = 20
  batch     = 8
  optimizer = adam(2e-4, schedule = linear())
  steps     = 40  # 64 clips, five times
  save      = every(20)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 40,
    main.batch == 8,
    main.optimizer.learning_rate == 0.0002,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.data.args.n_train == 64,
    main.data.args.n_eval == 32,
    main.data.args.max_length == 8_192,
    main.data.args.seed == 0,
    main.data.args.shuffle_buffer_size == 1_000,
    main.data.args.audio_cache_dir == "~/.cache/tinker-cookbook/audio-asr-clips",
    main.model.base == "thinkingmachines/Inkling",
    main.model.lora_rank == 16,
    main.every == 20,
    main.optimizer.schedule.kind == "linear",
  ]
}
