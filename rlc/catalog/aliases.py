"""Words of other libraries, and what they are here: TRL, verl, OpenRLHF, SkyRL, tinker-cookbook,
PyTorch. Some are parameters of ours, others have no parameter here, or another form, with advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS, KINDS
from rlc.catalog.records import Builtin, Declaration, Param

# Words for plain values, and how they are written here.
WORDS = {
    **dict.fromkeys(("True", "TRUE", "yes", "Yes", "on"), "true"),
    **dict.fromkeys(("False", "FALSE", "no", "No", "off"), "false"),
    **dict.fromkeys(("None", "null", "Null", "nil"), "none"),
}

# The names of parameters and fields, by where they stand; one that several share, as `steps` of all
# stages, stands at the first of them.
_PARAMS = {
    "model.base": "model_name model_name_or_path base_model model_path pretrained pretrain "
    "hf_model model_id",
    "model.lora_rank": "rank r lora_r lora_dim",
    "model.weights": "load_checkpoint_path init_from adapter checkpoint_path with_optimizer",
    "model.renderer": "renderer_name chat_template",
    "model.service": "provider backend",
    "sft.data": "dataset train_dataset train_data",
    "sft.batch preference.batch": "batch_size train_batch_size per_device_train_batch_size bs",
    "sft.optimizer": "optim optimiser",
    "sft.steps": "max_steps total_steps num_steps training_steps total_training_steps n_steps "
    "num_train_steps",
    "sft.epochs": "num_epochs num_train_epochs total_epochs n_epochs max_epochs",
    "sft.heldout preference.heldout": "eval_dataset test_dataset holdout eval_data validation",
    "sft.every preference.every": "eval_every eval_steps eval_interval",
    "sft.save": "checkpoint checkpoints save_strategy",
    "sft.deadlines": "timeout timeouts",
    "sft.budget": "max_budget",
    "sft.track": "logger loggers report_to log_to",
    "train.env": "environment envs environments",
    "train.sampling": "generation generation_config sampling_params sampling_config",
    "train.advantage": "adv_estimator advantage_estimator algorithm algo estimator",
    "train.aggregate": "loss_agg_mode loss_aggregation aggregation",
    "train.loss": "loss_fn loss_type policy_loss objective",
    "train.kl": "kl_penalty ref reference",
    "train.teacher": "teachers teacher_model distillation distill",
    "eval.tasks": "num_tasks n_tasks num_examples max_examples limit",
    "eval.samples": "num_samples n_samples num_rollouts_per_task n k",
    "eval.metrics": "metric",
    "eval.every": "eval_every eval_steps eval_interval eval_freq test_freq",
    "eval.first": "eval_on_start val_before_train",
    "preference.data": "dataset train_dataset train_data pairs preferences",
    "preference.loss": "loss_fn loss_type objective algorithm",
    "preference.reference": "ref ref_model reference_model reference_model_name",
    "sweep.over": "parameters params space search_space grid",
    "sweep.metric": "objective maximize target",
    "sweep.search": "method sampler algorithm",
    "problems.question": "prompt_key input_key question_key prompt_column",
    "problems.answer": "answer_key label_key solution target label",
    "problems.grader": "verifier scorer",
    "rollouts.group_size groups.group_size": "num_generations n_samples_per_prompt "
    "samples_per_prompt rollout_n num_return_sequences num_rollouts g n",
    "rollouts.stop sample.stop": "stop_sequences stop_strings stop_words stop_condition stop_token "
    "until",
    "grpo.scale": "scale_rewards norm_adv_by_std_in_grpo normalize_advantage",
    "rae.decay": "alpha ema_decay",
    "reinforce_pp.gamma rebn.gamma returns.gamma gem.rebn.gamma oat.rebn.gamma": "discount_factor",
    "reference.coef reverse_kl.coef forward_kl.coef": "kl_coef kl_coeff beta kl_beta kl_loss_coef "
    "init_kl_coef kl_penalty_coef kl_ctrl",
    "reference.discount": "kl_discount_factor",
    "reverse_kl.system": "system_prompt context teacher_system_prompt",
    "reverse_kl.demonstration": "demo golden_answer answer solution",
    "forward_kl.top_k": "k topk n_teacher_targets teacher_topk soft_targets",
    "adam.learning_rate": "lr actor_lr actor_learning_rate policy_lr step_size",
    "adam.beta1": "adam_beta1 beta_1",
    "adam.beta2": "adam_beta2 beta_2",
    "adam.eps": "adam_epsilon adam_eps",
    "adam.weight_decay": "wd adam_weight_decay",
    "adam.grad_clip_norm": "max_grad_norm grad_clip clip_grad gradient_clipping max_norm "
    "clip_grad_norm gradient_clip_val",
    "adam.schedule": "lr_scheduler lr_scheduler_type lr_schedule scheduler",
    "constant.warmup": "warmup_steps lr_warmup_steps num_warmup_steps",
    "groups.updates": "num_substeps num_minibatches num_mini_batches",
    "groups.resample": "dynamic_sampling filter_groups",
    "turns.parallel": "num_envs n_envs",
    "sample.max_tokens": "max_new_tokens max_completion_length max_response_length max_gen_len "
    "generate_max_len max_output_tokens response_length max_completion_tokens",
    "sample.temperature": "temp rollout_temperature",
    "sample.max_prompt_tokens": "max_prompt_length prompt_max_len max_prompt_len",
    "sample.max_episode_tokens": "max_model_len max_seq_len max_seq_length max_trajectory_tokens",
    "asynchronous.max_staleness": "max_steps_off_policy max_off_policy_steps max_async_level",
    "every.n": "save_every save_steps save_freq save_interval checkpoint_every",
    "every.keep": "save_total_limit max_to_keep max_ckpt_num max_actor_ckpt_to_keep",
    "every.best": "save_best load_best_model_at_end",
    "limit.usd": "max_cost cost_limit",
    "limit.time": "max_time time_limit",
    "preferred.samples": "num_samples n_samples group_size num_generations best_of",
    "dpo.beta ipo.beta simpo.beta cpo.beta orpo.beta brier.beta kto.beta": "dpo_beta kto_beta "
    "beta_dpo tau",
    "simpo.gamma": "simpo_gamma margin",
    "cpo.alpha": "cpo_alpha sft_coef rpo_alpha",
    "kto.desirable": "desirable_weight lambda_d",
    "kto.undesirable": "undesirable_weight lambda_u",
    "samples.top_k": "topk n_teacher_targets teacher_topk soft_targets",
    "random.n": "n_trials",
    "halving.eta": "factor",
}
# The names of what expressions read and do.
EXPRESSIONS = {
    "logp": "logprob logprobs log_prob log_probs log_p new_logprobs",
    "logq": "old_logp old_logprobs old_log_prob sampler_logprobs log_q",
    "ratio": "rho r_t importance_ratio",
    "adv": "advantage advantages A",
    "ref": "ref_logp ref_logprobs ref_log_prob reference logref teacher",
    "length": "n len tokens lengths",
    "chosen": "policy_chosen_logps chosen_logps chosen_logp logp_w win",
    "rejected": "policy_rejected_logps rejected_logps rejected_logp logp_l lose",
    "chosen_ref": "reference_chosen_logps ref_chosen_logps ref_chosen chosen_reference ref_w",
    "rejected_ref": "reference_rejected_logps ref_rejected_logps ref_rejected ref_l",
    "chosen_nll": "nll nll_loss sft_loss policy_nll_loss",
    "good": "label labels desirable is_desirable",
    "rating_margin": "margin margins rating_difference reward_margin score_margin",
    "chosen_rating": "chosen_score score_chosen chosen_reward rating_chosen",
    "rejected_rating": "rejected_score score_rejected rejected_reward rating_rejected",
    "rating": "score reply_rating",
    "process": "process_reward process_rewards step_reward step_rewards prm token_reward",
    "position": "pos index token_index",
    "mismatched": "KL_logps policy_KL_logps",
    "where": "if_else ifelse cond select iff",
    "min": "minimum",
    "max": "maximum",
    "clip": "clamp clamped bound",
    "exp": "e",
    "log": "ln",
    "abs": "fabs",
    "sigmoid": "logistic",
    "softplus": "log1pexp",
    "stop": "sg detach stop_gradient stop_grad no_grad",
    "mean": "avg average masked_mean",
    "sum": "masked_sum",
    "batch_top": "topk top_k",
    "batch_draw": "random",
}

_CLIP = "the bounds of the ratio itself: 0.2 on both sides is `clip_low = 0.8, clip_high = 1.2`"
_HOST = "where and how it is computed is up to the training service, not to the recipe"
_NO_CRITIC = "there is no critic: an advantage scheme compares rollouts with each other"
_LOGGED = "every step is recorded in the run folder; `track = wandb(…)` sends it elsewhere too"
_FOLDER = "a run has a folder of its own: `rlc run --run-dir DIR`"
_NAMES: Mapping[tuple[str, ...], str] = {
    ("seed", "random_seed", "data_seed", "rng_seed"): "the seed is an argument of the run: "
    "`rlc run --seed 1`",
    (
        *("batch_size", "train_batch_size", "rollout_batch_size", "global_batch_size", "bs"),
        *("groups_per_batch", "num_groups", "prompts_per_step", "num_prompts"),
        "per_device_train_batch_size",
    ): "`batch = groups(32, group_size = 8)`: 32 tasks a step, 8 rollouts of each",
    ("clip_range", "cliprange", "clip_ratio", "eps_clip", "clip_eps", "epsilon"): _CLIP,
    ("clip_ratio_low", "epsilon_low", "eps_clip_low", "clip_low_eps"): _CLIP,
    ("clip_ratio_high", "epsilon_high", "eps_clip_high", "clip_high_eps"): _CLIP,
    ("warmup_ratio", "lr_warmup_ratio", "lr_warmup_steps_ratio"): "`warmup` counts steps: "
    "`schedule = cosine(warmup = 10)`",
    ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches"): "a batch is as "
    "large as it says: `batch = groups(32, group_size = 8)`",
    ("mini_batch_size", "ppo_mini_batch_size", "minibatch_size", "micro_batch_size"): "`updates` "
    "says into how many optimiser updates a batch is split: `batch = groups(32, updates = 4)`",
    ("num_iterations", "ppo_epochs", "mu", "inner_epochs"): "each rollout is used once; `updates` "
    "splits a batch into several optimiser updates: `batch = groups(32, updates = 4)`",
    ("entropy_coef", "ent_coef", "entropy_coeff", "entropy_bonus"): "no loss here has an entropy "
    "bonus: the service tells the sampled token's probability only",
    ("vf_coef", "value_loss_coef", "critic_lr", "critic", "gae_lambda", "lam"): _NO_CRITIC,
    ("lora_alpha", "lora_dropout"): "of a LoRA adapter only the rank is chosen: `lora_rank = 32`",
    ("target_modules", "lora_target_modules"): "`train_mlp`, `train_attn` and `train_unembed` say "
    "which layers are adapted",
    ("do_sample", "greedy"): "`sample(max_tokens = 512, top_k = 1)` always takes the most likely "
    "token",
    (
        *("device", "gpus", "num_gpus", "n_gpus", "nnodes", "fp16", "bf16", "dtype", "precision"),
        *("gradient_checkpointing", "deepspeed", "fsdp", "tensor_parallel_size", "flash_attn"),
        *("num_workers", "use_vllm", "gpu_memory_utilization", "device_map"),
    ): _HOST,
    (
        "reward",
        "rewards",
        "reward_fn",
        "reward_funcs",
        "reward_function",
        "reward_model",
    ): "rewards come from the environment of the stage: `env = …`",
    ("logging_steps", "log_every", "log_freq", "logging_dir"): _LOGGED,
    ("output_dir", "log_path", "log_dir", "save_path", "save_dir", "default_local_dir"): _FOLDER,
    ("run_name", "wandb_project", "wandb_name", "project_name", "experiment_name"): "names of "
    'runs belong to a tracker: `track = wandb("project", run = "name")`',
    ("resume", "resume_from_checkpoint", "resume_mode"): "`rlc run --resume RUN` goes on with a "
    "run",
}
ELSEWHERE = {name: advice for names, advice in _NAMES.items() for name in names}

MAX_HOMES = 3  # builtins that a message names
Entry = TypeVar("Entry", Param, Builtin, Declaration)


def alias_of(name: str, entries: Iterable[Entry]) -> Entry | None:
    """Return the entry that another library calls ``name``."""
    return next((entry for entry in entries if name.lower() in aliases_of(entry)), None)


def aliases_of(entry: Param | Builtin | Declaration) -> list[str]:
    """Return the names of an entry in other libraries."""
    return _param_aliases().get(entry, []) if isinstance(entry, Param) else entry.aliases.split()


@cache
def _param_aliases() -> dict[Param, list[str]]:
    names = {place: aliases.split() for key, aliases in _PARAMS.items() for place in key.split()}
    return {
        param: names[place]
        for owner, params in _owners()
        for param in params
        if (place := f"{getattr(owner, 'name', owner.kind)}.{param.name}") in names
    }


def _owners() -> Iterator[tuple[Builtin | Declaration, tuple[Param, ...]]]:
    """Yield every builtin and block, with its parameters."""
    yield from ((builtin, builtin.params) for builtin in BUILTINS)
    yield from ((each, each.fields) for each in DECLARATIONS.values() if each.value is None)


def advice_for(name: str, fields: Sequence[Param] = ()) -> str | None:
    """Return what to write for a name that is none of the ``fields`` around it; None if unknown."""
    key, slots = name.lower(), {field.type: field.name for field in fields}
    if key in ELSEWHERE:
        return ELSEWHERE[key]
    if any(key in (f"{field.name}s", field.name.removesuffix("s")) for field in fields):
        return None  # a slip says less of other places than of its own
    homes = _homes().get(key, ())
    near = [home for home in homes if home[0] in slots]
    # Elsewhere in the language, a short word says little.
    far = [home for home in homes if len(key) > 4 or key != home[2].name]
    by_name: dict[str, list[Home]] = {}
    for home in near or far:
        by_name.setdefault(home[2].name, []).append(home)
    found = [_place(key, alike, slots) for alike in by_name.values()]
    return "; or ".join(found[:2]) or None


def _place(key: str, homes: Sequence[Home], slots: Mapping[str, str]) -> str:
    """Return where a parameter of several builtins or blocks is written (`eval_every`: an eval)."""
    words = key.split("_")
    homes = sorted(homes, key=lambda home: home[1].kind not in words)
    _, owner, param = homes[0]
    *others, last = dict.fromkeys(_called(owner) for _, owner, _ in homes[:MAX_HOMES])
    where = f"{', '.join(others)} and {last}" if others else last
    if len(homes) > MAX_HOMES:
        where = f"{', '.join([*others, last])} and others"
    slot = "a field" if isinstance(owner, Declaration) else "an argument"
    known = f"`{param.name}` is {slot} of {where}"
    if key != param.name.lower():
        known = f"it is called `{param.name}` here, {slot} of {where}"
    return f"{known}: `{_written(owner, param, slots)}`"


Home = tuple[str, Builtin | Declaration, Param]


@cache
def _homes() -> dict[str, list[Home]]:
    """Return every builtin and block that has a parameter of a name or alias, with its kind."""
    homes: dict[str, list[Home]] = {}
    for owner, params in _owners():
        for param in params:
            for name in {param.name, *aliases_of(param)}:
                homes.setdefault(name.lower(), []).append((owner.kind, owner, param))
    return homes


@cache
def _slots() -> dict[str, str]:
    """Return the name of a field or argument that takes a value of each kind."""
    fields = [field for declaration in DECLARATIONS.values() for field in declaration.fields]
    params = [param for builtin in BUILTINS for param in builtin.params]
    return {param.type: param.name for param in reversed([*fields, *params])}


def _called(owner: Builtin | Declaration) -> str:
    if isinstance(owner, Builtin):
        return f"`{owner.name}()`"
    return f"{'an' if owner.kind[0] in 'aes' else 'a'} `{owner.kind}`"


def _written(owner: Builtin | Declaration, param: Param, slots: Mapping[str, str]) -> str:
    """Return a parameter as a recipe writes it."""
    if isinstance(owner, Declaration):
        return f"{owner.kind} name {{ {param.name} = … }}"
    others = "…, " * any(other.required and other is not param for other in owner.params)
    call = f"{owner.name}({others}{param.name} = …)"
    if owner.kind in {kind.step for kind in KINDS.values()}:
        return f"|> {call}"
    slot = slots.get(owner.kind) or _slots().get(owner.kind)
    return f"{slot} = {call}" if slot else call
