# Graded by a rubric of each row's own: tinker-cookbook's `rubric.prometheus_experimental`.

model policy {
  base      = "Qwen/Qwen3.5-9B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

model grader {
  base     = "Qwen/Qwen3.6-35B-A3B"
  renderer = qwen3_5_disable_thinking
}

judge feedback = rubric("prometheus.md", model = grader, scale = [1, 5], max_tokens = 2048)

env tasks = rows("hub:prometheus-eval/Feedback-Collection", prompt = "orig_instruction")
  |> judged(feedback)
  |> reward(1 + 4 * total - 0.1 * truncated)

train main {
  model     = policy
  env       = tasks
  batch     = groups(100, group_size = 4)
  sampling  = sample(max_tokens = 32, temperature = 1.0)
  advantage = cookbook.center()
  loss      = stable_reinforce()
  optimizer = adam(1e-5)
  steps     = 999  # 99,952 rows, each once
  save      = every(20, ttl = 7d)
}
