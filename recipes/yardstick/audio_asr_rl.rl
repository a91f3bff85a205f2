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
