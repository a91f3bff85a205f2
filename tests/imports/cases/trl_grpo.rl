# A job of TRL (as in 1.16), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - the batch is that of one process: `num_processes=8` counts for eight

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2.5-0.5B"
  # all weights are trained there; here an adapter is, which takes about ten times the rate
  lora_rank = 32
}

# accuracy_reward: `math` wants the answer in \boxed{} or <answer>
env tasks = problems(
  "hub:HuggingFaceH4/Polaris-Dataset-53K",
  grader = { accuracy_reward = math },
  question = "prompt",
  answer = "solution",
  format_coef = 0.0,
)

train main {
  model     = policy
  env       = tasks
  batch     = groups(1, group_size = 8)
  sampling  = sample(max_tokens = 512, temperature = 1.0)  # the trainer's default
  advantage = trl.grpo(scale_rewards = group)
  # loss_type, epsilon: the trainer's default; each batch is used once, so the clip never acts
  loss      = ppo(clip_low = 0.8, clip_high = 1.2)
  aggregate = token_mean()
  # learning_rate, lr_scheduler_type: the trainer's default
  optimizer = adam(
    1e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.0,
    grad_clip_norm = 1.0,
    schedule = linear(),
  )
  steps     = 100  # there 3 × rows / 1: rows are not counted here
}
