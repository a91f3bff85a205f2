# Speech of doctors to text: tinker-cookbook's `audio.medical_asr.train`, with its values.

model policy {
  base      = "thinkingmachines/Inkling"
  lora_rank = 32
}

sft main {
  model     = policy
  data      = cookbook(
    "tinker_cookbook.recipes.audio.medical_asr.env:EkacareASRDatasetBuilder",
    args = {
      max_length      = 8192
      seed            = 0
      audio_cache_dir = "~/.cache/tinker-cookbook/medical-asr-clips"
    },
  )
  heldout   = cookbook(
    "tinker_cookbook.recipes.audio.medical_asr.env:EkacareASRDatasetBuilder",
    args = {
      max_length      = 8192
      seed            = 0
      audio_cache_dir = "~/.cache/tinker-cookbook/medical-asr-clips"
    },
    split = test,
  )
  every     = 100
  batch     = 16
  optimizer = adam(1e-3, schedule = linear())
  steps     = 2_172  # 2,895 clips, twelve times
  save      = every(100)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 2_172,
    main.batch == 16,
    main.optimizer.learning_rate == 0.001,
    main.save.every == 100,
  ]
}

test what_is_trained {
  expect = [
    main.data.args.max_length == 8_192,
    main.data.args.seed == 0,
    main.data.args.audio_cache_dir == "~/.cache/tinker-cookbook/medical-asr-clips",
    main.model.base == "thinkingmachines/Inkling",
    main.model.lora_rank == 32,
    main.every == 100,
    main.optimizer.schedule.kind == "linear",
  ]
}
