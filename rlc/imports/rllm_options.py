"""The options of rLLM on Tinker, in its two generations, and why some are not carried over.

``LEGACY`` is `tinker_rl_trainer.yaml`; ``UNIFIED`` is `rllm/base.yaml` with
`rllm/backend/tinker.yaml`, whose keys may start with `rllm.`.
"""

from __future__ import annotations

from rlc.imports.settings import Option, table

_AGENT = "for an agent in an environment; this job plays a workflow"
_DISTILL = "only for distillation (adv_estimator = distill)"
_FOLDER = "a run writes to a folder of its own (`rlc run --run-dir`)"
_UNREAD = "it is not read on this path"
_RENDERING = "the renderer of the model decides how a chat is written"
_PARALLEL = "rlc finds out by itself how many rollouts the service takes at once"
_GATEWAY = "there is no gateway between rlc and the model"
_CALLS = "splits the gradient of one update into several calls, which leaves the update as it is"
_WHOLE_SPLIT = "all tasks of the test split are evaluated, however many at once"
_DIVIDED = "stored and never read: advantages are always divided by the standard deviation"
_OVERLAPPED = "rlc always submits both before it waits for either"
_WITH_SAMPLER = "the loss always compares with the sampler's probabilities"
_TIS = "only with rollout_correction.tis_mode"
_EXACT = "rlc trains on the very tokens that were sampled"
_REJECTION = "only with rejection_sample.enable"
_OWN_REWARDS = "each step of this workflow has its own reward"
_WRITTEN_OUT = "names files that hold defaults, which are written out here"

_SHARED = (
    Option("tinker_base_url", "string", None, "`rlc run --base-url`, or TINKER_BASE_URL"),
    Option("model.name", "string", "Qwen/Qwen3-8B"),
    Option("model.lora_rank", "int", 32),
    Option("model.train_unembed", "bool", True),
    Option("model.train_attn", "bool", True),
    Option("model.train_mlp", "bool", True),
    Option("training.learning_rate", "float", 2e-5),
    Option("training.beta1", "float", 0.9),
    Option("training.beta2", "float", 0.95),
    Option("training.eps", "float", 1e-8),
    Option("training.max_length", "int", 32768),
    Option("training.num_minibatches", "int", 1, _CALLS),
    Option("workflow.n_parallel_tasks", "int", 256, _PARALLEL),
    Option("workflow.retry_limit", "int", 3),
    Option("workflow.raise_on_error", "bool", True),
    Option("agent.*", "any", None, _AGENT),
    Option("env.*", "any", None, _AGENT),
    Option("rollout_engine.reasoning_effort", "string", "medium", _RENDERING),
    Option("rollout_engine.accumulate_reasoning", "bool", False, _RENDERING),
    Option("rollout_engine.disable_thinking", "bool", False),
    Option("rollout_engine.bypass_render_with_parser", "bool", False, _RENDERING),
    Option("rollout_engine.renderer_name", "string"),
    Option("data.train_files", "string"),
    Option("data.val_files", "string"),
    Option("data.val_batch_size", "int", 32, _WHOLE_SPLIT),
    Option("trainer.total_epochs", "int", 10),
    Option("trainer.logger", "words", ["console"]),
    Option("trainer.test_freq", "int", 5),
    Option("trainer.save_freq", "int", 20),
    Option("algorithm.adv_estimator", "string", "grpo"),
    Option("hydra.*", "any", None, _FOLDER),
    Option("defaults", "any", None, _WRITTEN_OUT),
)

LEGACY = table(
    *_SHARED,
    Option("training.group_size", "int", 16),
    Option("training.val_group_size", "int", 1),
    Option("sampling.temperature", "float", 1.0),
    Option("sampling.top_p", "float", 1.0),
    Option("val_sampling.temperature", "float"),
    Option("val_sampling.top_p", "float"),
    Option("val_sampling.max_tokens", "int"),
    Option("algorithm.gamma", "float", 1.0, _UNREAD),
    Option("algorithm.lam", "float", 0.95, _UNREAD),
    Option("algorithm.norm_adv_by_std_in_grpo", "bool", False, _DIVIDED),
    Option("algorithm.grouping_level", "string", "trajectory"),
    Option("algorithm.remove_constant_reward_groups", "bool", False),
    Option("algorithm.shared_tokenizer", "bool", False, _DISTILL),
    Option("algorithm.teacher_rollout_args.*", "any", None, _DISTILL),
    Option("algorithm.clip_advantages", "bool", False, _DISTILL),
    Option("algorithm.adv_clip_min", "float", -5.0, _DISTILL),
    Option("algorithm.adv_clip_max", "float", 5.0, _DISTILL),
    Option("data.max_prompt_length", "int", 2048),
    Option("data.max_response_length", "int", 2048),
    Option("data.train_batch_size", "int", 64),
    Option("trainer.project_name", "string", "rllm-tinker"),
    Option("trainer.experiment_name", "string", "default"),
    Option("trainer.val_before_train", "bool", True),
    Option("trainer.default_local_dir", "string", None, _FOLDER),
    Option("trainer.resume_from_tinker_id", "string"),
)

_DEAD = "the unified trainer reads it no more"
_LATER = "`rlc run --resume` goes on with a run of rlc's own"

UNIFIED = table(
    *_SHARED,
    Option("backend", "string", "tinker", "rlc trains through Tinker's interface in any case"),
    Option("fuse_forward_backward_and_optim_step", "bool", False, _OVERLAPPED),
    Option("training.group_size", "int", 8),
    Option("validation.group_size", "int", 1),
    Option("training.lr_schedule", "string"),
    Option("training.warmup_steps_ratio", "float"),
    Option("training.default_local_dir", "string", None, _FOLDER),
    Option("training.resume_mode", "string", "auto", _LATER),
    Option("training.resume_from_path", "string", None, _LATER),
    Option("data.max_prompt_length", "int", 30720),
    Option("data.max_response_length", "int", 2048),
    Option("data.train_batch_size", "int", 32),
    Option("data.seed", "int", 0, "`rlc run --seed` seeds every choice"),
    Option("rollout.n", "int"),
    Option("rollout.n_val", "int"),
    Option("rollout.train.temperature", "float", 1.0),
    Option("rollout.train.top_p", "float", 1.0),
    Option("rollout.train.max_tokens", "int"),
    Option("rollout.val.temperature", "float", 1.0),
    Option("rollout.val.top_p", "float", 1.0),
    Option("rollout.val.max_tokens", "int"),
    Option("trainer.total_batches", "int", -1),
    Option("trainer.project_name", "string", "rllm-training"),
    Option("trainer.experiment_name", "string", "default"),
    Option("trainer.val_before_train", "bool", False),
    Option("trainer.val_only", "bool", False),
    Option("algorithm.norm_adv_by_std_in_grpo", "bool", True),
    Option("algorithm.use_rllm", "bool", None, _DEAD),
    Option("algorithm.use_precomputed_advantage", "bool", False),
    Option("algorithm.loss_fn", "string"),
    Option("algorithm.env_loss_coef", "float"),
    Option("algorithm.loss_agg_mode", "string"),
    Option("algorithm.lr_schedule", "string", "constant"),
    Option("algorithm.warmup_steps", "int", -1),
    Option("algorithm.warmup_steps_ratio", "float", 0.0),
    Option("algorithm.kl_beta", "float", 0.0),
    Option("algorithm.eps_clip", "float", 0.2),
    Option("algorithm.eps_clip_high", "float"),
    Option("algorithm.router_replay", "string", "disabled", "the service has no router replay"),
    Option("algorithm.rollout_correction.bypass_mode", "bool", True, _WITH_SAMPLER),
    Option("algorithm.rollout_correction.tis_mode", "string"),
    Option("algorithm.rollout_correction.tis_cap", "float", 2.0, _TIS),
    Option("stepwise_advantage.*", "any", None, _DEAD),
    Option("disable_thinking", "bool", False),
    Option("accumulate_reasoning", "bool", False, _RENDERING),
    Option("mask_truncated_samples", "bool", False),
    Option("filter_token_mismatch", "bool", True, _EXACT),
    Option("compact_filtering.enable", "bool", False),
    Option("compact_filtering.*", "any", None, "only with compact_filtering.enable"),
    Option("rejection_sample.enable", "bool", False),
    Option("rejection_sample.multiplier", "int", 1, _REJECTION),
    Option("rejection_sample.min_partial_solve_tasks", "int", 1, _REJECTION),
    Option("rejection_sample.min_trajs_per_group", "int", 2),
    Option("rejection_sample.filter_uniform_groups", "bool", False),
    Option("async_training.enable", "bool", False),
    Option("async_training.staleness_threshold", "float", 0.0),
    Option("async_training.*", "any", None, "how rollouts and updates interleave is rlc's affair"),
    Option("workflow.use_workflow", "bool", True, "this job plays a workflow"),
    Option("workflow.name", "string", None, "this job plays a workflow of its own"),
    Option("workflow.workflow_args.timeout", "float"),
    Option("workflow.workflow_args.*", "any", None, _OWN_REWARDS),
    Option("workflow.timeout", "float"),
    Option("workflow.gamma", "float", 0.0, _OWN_REWARDS),
    Option("workflow.reward_bonus_coeff", "float", 0.0, _OWN_REWARDS),
    Option("workflow.warm_queue_size", "int", -1, _PARALLEL),
    Option("gateway.*", "any", None, _GATEWAY),
    Option("remote_runtime.*", "any", None, "the environments run beside rlc"),
    Option("episode_logging.*", "any", None, "a run writes its rollouts to its folder"),
)
