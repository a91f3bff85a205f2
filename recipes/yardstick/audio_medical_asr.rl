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
