# Agents: one in Python whose replies are graded, and a program whose exit status is its reward.
model policy {
  base      = "tiny"
  lora_rank = 4
}

env shop = agent(
  "frameworks.py:solve",
  tasks = rows("../../../recipes/data/doors.jsonl"),
  grader = grade_with("frameworks.py:grade"),
)

env doors = agent(
  command = ["sh", "-c", "exit 1"],
  tasks = rows("../../../recipes/data/doors.jsonl"),
  reward = exit_status,
)

train main {
  model     = policy
  env       = shop + doors
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 1
}
