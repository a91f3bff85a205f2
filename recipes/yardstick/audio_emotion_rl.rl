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
