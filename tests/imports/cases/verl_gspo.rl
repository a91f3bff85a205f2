# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - warm-up: the first step has a rate of 0 there, and 1 / warmup of it here
#   - no place here: data.return_raw_chat=True, actor_rollout_ref.model.use_remove_padding=true,
#     actor_rollout_ref.actor.use_dynamic_bsz=true,
#     actor_rollout_ref.ref.log_prob_use_dynamic_bsz=true,
#     actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true,
#     actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480,
#     actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=30720,
#     actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=30720,
#     actor_rollout_ref.rollout.name=vllm, actor_rollout_ref.rollout.mode=async,
#     actor_rollout_ref.model.enable_gradient_checkpointing=true,
#     actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8,
#     actor_rollout_ref.actor.fsdp_config.param_offload=true,
#     actor_rollout_ref.actor.fsdp_config.optimizer_offload=true,
#     actor_rollout_ref.actor.ulysses_sequence_parallel_size=1,
#     actor_rollout_ref.rollout.gpu_memory_utilization=0.8,
#     actor_rollout_ref.rollout.tensor_model_parallel_size=1,
#     actor_rollout_ref.rollout.enable_chunked_prefill=true,
#     actor_rollout_ref.rollout.max_num_batched_tokens=10240,
#     actor_rollout_ref.ref.fsdp_config.param_offload=true,
#     actor_rollout_ref.ref.ulysses_sequence_parallel_size=1,
#     actor_rollout_ref.actor.entropy_checkpointing=true, reward_model.reward_manager=dapo,
#     reward_model.reward_kwargs.overlong_buffer_cfg.log=false,
#     reward_model.reward_kwargs.max_resp_len=8192, trainer.n_gpus_per_node=8,
#     trainer.nnodes=$SLURM_JOB_NUM_NODES,
#     trainer.default_local_dir=/rl/checkpoints/experimental/4b/gspo/gspo-epslow-0.0003-epshigh-0.0004-$(basename
#     $MODEL_PATH)-RL, trainer.resume_mode=auto, trainer.log_val_generations=2
#   - a longer prompt ends its episode without a reply; leave such rows out of the data:
#     data.filter_overlong_prompts=true
#   - without effect beside the other options: algorithm.kl_ctrl.kl_coef=0.0

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2.5-3B-Instruct"
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
  "/data/gsm8k/train.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)

train main {
  model     = policy
  env       = tasks
  batch     = groups(512, group_size = 16, updates = 4)
  sampling  = sample(max_tokens = 8192, temperature = 1.0, max_prompt_tokens = 2048)
  advantage = verl.grpo()
  loss      = gspo(clip_low = 0.9997, clip_high = 1.0004)
  aggregate = seq_mean_token_mean()
  optimizer = adam(
    1e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.1,
    grad_clip_norm = 1.0,
    schedule = constant(warmup = 25),
  )
  steps     = 500
  save      = every(10)  # verl keeps all, rlc the newest 3
  track     = [
    wandb("RL-GSPO", run = "gspo-epslow-0.0003-epshigh-0.0004-$(basename $MODEL_PATH)-RL"),
  ]
}

env test_tasks = rows(
  "/data/gsm8k/test.parquet",
  prompt = "prompt",
  grader = grade_with("rewards.py:score"),
)

eval heldout {
  model    = main
  env      = test_tasks
  tasks    = 64  # all rows there
  samples  = 1
  sampling = sample(max_tokens = 8192, temperature = 1.0, top_p = 0.7)
  every    = 10
}
