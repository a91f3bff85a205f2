# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - no place here: actor_rollout_ref.model.lora_alpha=32,
#     actor_rollout_ref.model.use_remove_padding=True,
#     actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40,
#     actor_rollout_ref.model.enable_gradient_checkpointing=True,
#     actor_rollout_ref.actor.fsdp_config.param_offload=False,
#     actor_rollout_ref.actor.fsdp_config.optimizer_offload=False,
#     actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=40,
#     actor_rollout_ref.rollout.tensor_model_parallel_size=2, actor_rollout_ref.rollout.name=vllm,
#     actor_rollout_ref.rollout.gpu_memory_utilization=0.6,
#     actor_rollout_ref.rollout.load_format=safetensors,
#     actor_rollout_ref.rollout.layered_summon=True,
#     actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=40,
#     actor_rollout_ref.ref.fsdp_config.param_offload=True, trainer.critic_warmup=0,
#     trainer.n_gpus_per_node=2, trainer.nnodes=1
#   - a longer prompt ends its episode without a reply; leave such rows out of the data:
#     data.filter_overlong_prompts=true

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2.5-3B-Instruct"
  lora_rank = 64
}

# rewards.py is to be written; for the same rewards as there:
#   from verl.utils.reward_score import default_compute_score
#   def score(reply, row):
#       answer, more = row["reward_model"]["ground_truth"], row.get("extra_info")
#       found = default_compute_score(row["data_source"], reply, answer, more)
#       return found["score"] if isinstance(found, dict) else float(found)
env tasks = rows(
  "~/data/gsm8k/train.parquet",
  prompt = "prompt",
  shuffle = false,
  grader = grade_with("rewards.py:score"),
)

loss imported(low = 0.8, high = 1.2, coef = 0.001) {
  gain  = min(ratio * adv, clip(ratio, low, high) * adv)
  token = coef * min(exp(clip(ref - logp, -20, 20)) - clip(ref - logp, -20, 20) - 1, 10) - gain
}

train main {
  model     = policy
  env       = tasks
  batch     = groups(16, group_size = 5)
  sampling  = sample(max_tokens = 1024, temperature = 1.0, max_prompt_tokens = 512)
  advantage = verl.grpo()
  loss      = imported()  # each batch is used once, so the clip never acts
  kl        = reference(policy.base, coef = 0)  # coef = 0: the divergence is a part of the loss
  aggregate = token_mean()  # the trainer's default
  optimizer = adam(
    3e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.01,
    grad_clip_norm = 1.0,
  )
  epochs    = 15         # of whole batches there
  save      = every(20)  # verl keeps all, rlc the newest 3
  track     = [wandb("verl_grpo_example_gsm8k", run = "qwen2.5_3b_grpo_lora")]
}

env test_tasks = rows(
  "~/data/gsm8k/test.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)

eval heldout {
  model    = main
  env      = test_tasks
  tasks    = 64  # all rows there
  samples  = 1
  sampling = sample(max_tokens = 1024, temperature = 1.0, top_k = 1)
  every    = 5
}
