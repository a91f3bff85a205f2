# A job of TRL (as in 1.16), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - the batch is that of one process: `num_processes=8` counts for eight
#   - the split `train[:5%]`: a part of one is `first(90%)` or `last(10%)`
#   - no place here: config_file=examples/accelerate_configs/deepspeed_zero3.yaml,
#     output_dir=gspo-Qwen3-0.6B, log_completions=true
#   - the service has its own adapters, their scale and their precision: dtype=bfloat16,
#     lora_target_modules=['q_proj,', 'v_proj']

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen3-0.6B"
  lora_rank = 16  # the trainer's default
}

# think_format_reward: rewards.py is to be written; TRL calls with lists, rlc with a reply and a
# row:
#   from trl.rewards import think_format_reward as theirs
#   def think_format_reward(reply, row):
#       columns = {name: [value] for name, value in row.items()}
#       said = [[{"role": "assistant", "content": reply}]]  # [reply] if prompts are plain text
#       return theirs(prompts=[row["prompt"]], completions=said, **columns)[0] or 0.0
# accuracy_reward: `math` wants the answer in \boxed{} or <answer>
env tasks = problems(
  "hub:AI-MO/NuminaMath-TIR",
  grader = {
    think_format_reward = grade_with("rewards.py:think_format_reward")
    accuracy_reward     = math
  },
  question = "prompt",
  answer = "solution",
  format_coef = 0.0,
)

train main {
  model     = policy
  env       = tasks
  batch     = groups(8, group_size = 8, updates = 4)
  sampling  = sample(max_tokens = 1024, temperature = 1.0)
  advantage = trl.grpo(scale_rewards = group)
  loss      = gspo(clip_low = 0.9997, clip_high = 1.0004)
  aggregate = seq_mean_token_mean()
  # lr_scheduler_type: the trainer's default
  optimizer = adam(
    1e-5,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.0,
    grad_clip_norm = 1.0,
    schedule = linear(),
  )
  steps     = 100  # there 3 × rows / 8: rows are not counted here
}
