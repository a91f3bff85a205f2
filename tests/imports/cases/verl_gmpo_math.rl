# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - warm-up: the first step has a rate of 0 there, and 1 / warmup of it here
#   - no place here: actor_rollout_ref.model.use_remove_padding=True,
#     actor_rollout_ref.model.override_config.max_position_embeddings=32768,
#     actor_rollout_ref.actor.use_dynamic_bsz=True,
#     actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True,
#     actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True,
#     actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480,
#     actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=30720,
#     actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=30720,
#     actor_rollout_ref.rollout.name=vllm,
#     actor_rollout_ref.model.enable_gradient_checkpointing=True,
#     actor_rollout_ref.actor.fsdp_config.param_offload=True,
#     actor_rollout_ref.actor.fsdp_config.optimizer_offload=True,
#     actor_rollout_ref.actor.ulysses_sequence_parallel_size=4,
#     actor_rollout_ref.rollout.gpu_memory_utilization=0.80,
#     actor_rollout_ref.rollout.tensor_model_parallel_size=4,
#     actor_rollout_ref.rollout.enable_chunked_prefill=True,
#     actor_rollout_ref.rollout.max_num_batched_tokens=10240,
#     actor_rollout_ref.ref.fsdp_config.param_offload=True,
#     actor_rollout_ref.ref.ulysses_sequence_parallel_size=4,
#     actor_rollout_ref.actor.fsdp_config.fsdp_size=32,
#     actor_rollout_ref.actor.checkpoint.save_contents=['model', 'optimizer', 'extra'],
#     reward_model.reward_manager=dapo, reward_model.reward_kwargs.overlong_buffer_cfg.log=False,
#     reward_model.reward_kwargs.max_resp_len=8192, trainer.n_gpus_per_node=8, trainer.nnodes=8,
#     trainer.default_local_dir=~/verl/ckpts/DAPO/DAPO-Qwen2.5-7b-MATH-0527a1,
#     trainer.resume_mode=auto, trainer.log_val_generations=10
#   - changes what is learnt, and has no words here: data.truncation=left
#   - without effect beside the other options: algorithm.kl_ctrl.kl_coef=0.0

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "~/verl/models/Qwen2.5-Math-7B"
  # all weights are trained there; here an adapter is, which takes about ten times the rate
  lora_rank = 32
}

# rewards.py is to be written; for the same rewards as there:
#   from verl.utils.reward_score import default_compute_score
#   def score(reply, row):
#       answer, more = row["reward_model"]["ground_truth"], row.get("extra_info")
#       found = default_compute_score(row["data_source"], reply, answer, more)
#       return found["score"] if isinstance(found, dict) else float(found)
env tasks = rows(
  "~/verl/data/dapo-math-17k.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
  |> reward(total + min((4096 - tokens) / 4096 * 1.0, 0))

loss imported(low = 0.6, high = 1.4) {
  clipped = min(ratio * adv, clip(ratio, low, high) * adv)
  gain    = where(adv < 0, max(clipped, 3.0 * adv), clipped)
  token   = -gain
}

train main {
  model     = policy
  env       = tasks
  batch     = groups(512, group_size = 16, updates = 16)
  sampling  = sample(max_tokens = 8192, temperature = 1.0, max_prompt_tokens = 2048)
  advantage = verl.grpo()
  loss      = imported()  # there `geo_mean`; docs/losses.md may have it
  aggregate = token_mean()
  optimizer = adam(
    1e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.1,
    grad_clip_norm = 1.0,
    schedule = constant(warmup = 10),
  )
  steps     = 200
  save      = every(10)  # verl keeps all, rlc the newest 3
  track     = [wandb("DAPO", run = "DAPO-Qwen2.5-7b-MATH-0527a1")]
}

env test_tasks = rows(
  "~/verl/data/aime-2024.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)
  |> reward(total + min((4096 - tokens) / 4096 * 1.0, 0))

eval heldout {
  model    = main
  env      = test_tasks
  tasks    = 64  # all rows there
  samples  = 1
  sampling = sample(max_tokens = 8192, temperature = 1.0, top_p = 0.7)
  every    = 10
  first    = true
}
