# A GEM training command (tinker_cookbook_train.py), imported with `rlc import`.

model policy {
  # in place of "Qwen/Qwen3-8B-Base", which the hosted service no longer trains (since 2026-06-12)
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32  # the script's default
}

# prompt_type: the script's default
# the script also puts "Question: " before the task
env math12k = gem("math:Math12K", use_mp = false)
  |> chat(instruction = "Please reason step by step, and put your final answer within \\boxed{}.")

train main {
  model     = policy
  env       = math12k
  batch     = groups(64, group_size = 16)
  # temperature: the cookbook's default
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  advantage = cookbook.center()      # reward less the group's mean
  loss      = importance_sampling()  # the cookbook's default
  optimizer = adam(2e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 200  # the script's default
  # the script's default; the cookbook keeps each for a week, rlc the newest 3 of them
  save      = every(25, ttl = 7d)
}
