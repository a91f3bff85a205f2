# Answers of a single token: yes or no. The prompt says so, and nothing has to be marked.

model policy {
  base = "Qwen/Qwen3-8B"
}

env yes_or_no = problems(
  "data/yes_or_no.csv",
  grader = exact,
  suffix = " Answer yes or no.",
  format_coef = 0.0,
)

train main {
  model     = policy
  env       = yes_or_no
  batch     = groups(4, group_size = 64)
  sampling  = sample(max_tokens = 1)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
