"""What words of other libraries are here: TRL, verl, OpenRLHF, SkyRL, tinker-cookbook, PyTorch.

A name for a parameter of ours is one of its ``aliases``. Here is what has no parameter, or another
form, with what to write instead; and how any name finds the builtin or declaration that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    ("do_sample", "greedy"): "`sample(max_tokens = 512, top_k = 1)` always takes the likeliest "
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
    """What another library calls ``name``."""
    return next((entry for entry in entries if name.lower() in entry.aliases.split()), None)


def advice_for(name: str, fields: Sequence[Param] = ()) -> str | None:
    """What to write for a name that the ``fields`` around it do not have; None if unknown.

    What can stand in one of the fields comes first.
    """
    key, taken = name.lower(), {field.type: field.name for field in fields}
    homes = _homes().get(key, ())
    if key in ELSEWHERE:
        return ELSEWHERE[key]
    near = [home for home in homes if home[0] in taken]
    # Elsewhere in the language, a short word says little.
    far = [home for home in homes if len(key) > 4 or key != home[2].name]
    by_name: dict[str, list[Home]] = {}
    for home in near or far:
        by_name.setdefault(home[2].name, []).append(home)
    found = [_place(key, alike, taken) for alike in by_name.values()]
    return "; or ".join(found[:2]) or None


def _place(key: str, homes: Sequence[Home], taken: Mapping[str, str]) -> str:
    """Where a parameter that several builtins or blocks have is written (`eval_every`: an eval)."""
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
    return f"{known}: `{_written(owner, param, taken)}`"


Home = tuple[str, Builtin | Declaration, Param]


@cache
def _homes() -> dict[str, list[Home]]:
    """Every builtin and block that has a parameter of a name or alias, with its kind."""
    homes: dict[str, list[Home]] = {}
    blocks = [declaration for declaration in DECLARATIONS.values() if declaration.value is None]
    owners: list[Builtin | Declaration] = [*BUILTINS, *blocks]
    for owner in owners:
        for param in owner.params if isinstance(owner, Builtin) else owner.fields:
            for name in {param.name, *param.aliases.split()}:
                homes.setdefault(name.lower(), []).append((owner.kind, owner, param))
    return homes


@cache
def _slots() -> dict[str, str]:
    """The name of a field or argument that takes a value of each kind."""
    fields = [field for declaration in DECLARATIONS.values() for field in declaration.fields]
    params = [param for builtin in BUILTINS for param in builtin.params]
    return {param.type: param.name for param in reversed([*fields, *params])}


def _called(owner: Builtin | Declaration) -> str:
    if isinstance(owner, Builtin):
        return f"`{owner.name}()`"
    return f"{'an' if owner.kind[0] in 'aes' else 'a'} `{owner.kind}`"


def _written(owner: Builtin | Declaration, param: Param, taken: Mapping[str, str]) -> str:
    """The parameter as it is written in a recipe."""
    if isinstance(owner, Declaration):
        return f"{owner.kind} name {{ {param.name} = … }}"
    others = "…, " * any(other.required and other is not param for other in owner.params)
    call = f"{owner.name}({others}{param.name} = …)"
    if owner.kind in {kind.step for kind in KINDS.values()}:
        return f"|> {call}"
    slot = taken.get(owner.kind) or _slots().get(owner.kind)
    return f"{slot} = {call}" if slot else call
