# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - no place here: actor_rollout_ref.model.use_remove_padding=True,
#     actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16,
#     actor_rollout_ref.model.enable_gradient_checkpointing=True,
#     actor_rollout_ref.actor.fsdp_config.param_offload=False,
#     actor_rollout_ref.actor.fsdp_config.optimizer_offload=False,
#     actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16,
#     actor_rollout_ref.rollout.tensor_model_parallel_size=2, actor_rollout_ref.rollout.name=vllm,
#     actor_rollout_ref.rollout.gpu_memory_utilization=0.6,
#     actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16,
#     actor_rollout_ref.ref.fsdp_config.param_offload=True, trainer.critic_warmup=0,
#     trainer.n_gpus_per_node=8, trainer.nnodes=1
#   - a longer prompt ends its episode without a reply; leave such rows out of the data:
#     data.filter_overlong_prompts=true

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2-7B-Instruct"
  # all weights are trained there; here an adapter is, which takes about ten times the rate
  lora_rank = 32
}

env tasks_1 = rows(
  "~/data/gsm8k/train.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
env tasks_2 = rows(
  "~/data/math/train.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
# rewards.py is to be written; for the same rewards as there:
#   from verl.utils.reward_score import default_compute_score
#   def score(reply, row):
#       answer, more = row["reward_model"]["ground_truth"], row.get("extra_info")
#       found = default_compute_score(row["data_source"], reply, answer, more)
#       return found["score"] if isinstance(found, dict) else float(found)
# verl mixes the files by their numbers of rows; weigh them so: 3 * a + 1 * b
env tasks = tasks_1 + tasks_2

loss imported(low = 0.8, high = 1.2, coef = 0.001) {
  clipped = min(ratio * adv, clip(ratio, low, high) * adv)
  gain    = where(adv < 0, max(clipped, 3.0 * adv), clipped)
  token   = coef * min(exp(clip(ref - logp, -20, 20)) - clip(ref - logp, -20, 20) - 1, 10) - gain
}

train main {
  model     = policy
  env       = tasks
  batch     = groups(1024, group_size = 5, updates = 4)
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_prompt_tokens = 1024)
  advantage = verl.grpo()
  loss      = imported()
  kl        = reference(policy.base, coef = 0)  # coef = 0: the divergence is a part of the loss
  aggregate = token_mean()                      # the trainer's default
  optimizer = adam(
    1e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.01,
    grad_clip_norm = 1.0,
  )
  # there 15 epochs of all files, whose rows are not counted here
  steps     = 100
  save      = every(20)  # verl keeps all, rlc the newest 3
  track     = [wandb("verl_grpo_example_gsm8k_math", run = "qwen2_7b_function_rm")]
}

env test_tasks_1 = rows(
  "~/data/gsm8k/test.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
env test_tasks_2 = rows(
  "~/data/math/test.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
# verl mixes the files by their numbers of rows; weigh them so: 3 * a + 1 * b
env test_tasks = test_tasks_1 + test_tasks_2

eval heldout {
  model    = main
  env      = test_tasks
  tasks    = 64  # all rows there
  samples  = 1
  sampling = sample(max_tokens = 1024, temperature = 1.0, top_k = 1)
  every    = 5
  first    = true
}
