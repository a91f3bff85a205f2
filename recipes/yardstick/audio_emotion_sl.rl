# What is said and in which mood, by imitation: tinker-cookbook's `audio.emotion.sl_train`.

model policy {
  base      = "thinkingmachines/Inkling"
  lora_rank = 32
}

sft main {
  model     = policy
  data      = cookbook(
    "tinker_cookbook.recipes.audio.emotion.sl_train:ExpressoSFTDatasetBuilder",
    args = {
      data_dir   = "~/.cache/tinker-cookbook/audio-data/expresso_16khz"
      n_train    = 1_600
      n_eval     = 128
      max_length = 8192
      seed       = 0
    },
  )
  heldout   = cookbook(
    "tinker_cookbook.recipes.audio.emotion.sl_train:ExpressoSFTDatasetBuilder",
    args = {
      data_dir   = "~/.cache/tinker-cookbook/audio-data/expresso_16khz"
      n_train    = 1_600
      n_eval     = 128
      max_length = 8192
      seed       = 0
    },
    split = test,
  )
  every     = 25
  batch     = 16
  optimizer = adam(2e-4)
  steps     = 100  # 1,600 clips, each once
  save      = every(50)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 100,
    main.batch == 16,
    main.optimizer.learning_rate == 0.0002,
    main.save.every == 50,
  ]
}

test what_is_trained {
  expect = [
    main.data.args.n_train == 1_600,
    main.data.args.n_eval == 128,
    main.data.args.max_length == 8_192,
    main.data.args.seed == 0,
    main.model.base == "thinkingmachines/Inkling",
    main.model.lora_rank == 32,
    main.every == 25,
  ]
}
