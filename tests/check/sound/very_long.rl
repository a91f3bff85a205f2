# Answers of up to 100,000 tokens, in a model with room for them, and prompts of any length that
# the rest leaves.

model policy {
  base      = "Qwen/Qwen3.8-27B:peft:262144"
  lora_rank = 128
}

env hard = gem("math:Orz57K", use_mp = false)
  |> chat(instruction = "Think as long as you need. Final answer: \\boxed{}.")

train main {
  model     = policy
  env       = hard
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 100_000, max_prompt_tokens = 160_000)
  advantage = rloo(constant = drop)
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
