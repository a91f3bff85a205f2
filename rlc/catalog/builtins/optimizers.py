"""The optimiser and the schedules of its learning rate."""

from __future__ import annotations

from typing import Any

from rlc.catalog.records import Args, Builtin, Param, builtin, share
from rlc.plan.parts import AdamPlan, SchedulePlan

_WARMUP = Param(
    "warmup",
    "int",
    "steps in which the rate rises from zero",
    0,
    low=0,
    aliases="warmup_steps lr_warmup_steps num_warmup_steps",
)
_FLOOR = share("floor", "share of the rate that it falls towards", 0.0)

_DONE = "x = (s − w) / (steps + 1 − w), w = max(warmup, 1): the last step still learns"


def _schedule(name: Any, doc: str, formula: tuple[str, ...], *params: Param) -> Builtin:
    def build(args: Args) -> SchedulePlan:
        return SchedulePlan(name, args.warmup, args.values.get("floor", 1.0))

    return Builtin(
        name,
        "schedule",
        doc,
        build,
        (_WARMUP, *params),
        formula=formula,
        example=f"optimizer = adam(1e-4, schedule = {name}(warmup = 5))",
    )


SCHEDULES = (
    _schedule(
        "constant",
        "the full learning rate from the end of the warm-up on",
        ("lr_s = lr min(1, s / warmup)",),
    ),
    _schedule(
        "linear",
        "down in a straight line towards the floor, as in tinker-cookbook 0.5.8",
        ("lr_s = lr (1 − (1 − floor) x)", _DONE),
        _FLOOR,
    ),
    _schedule(
        "cosine",
        "down along half a cosine towards the floor, as in tinker-cookbook 0.5.8",
        ("lr_s = lr (floor + (1 − floor) (1 + cos π x) / 2)", _DONE),
        _FLOOR,
    ),
)
DEFAULT_SCHEDULE = SchedulePlan("constant", 0, 1.0)

ADAM = builtin(
    "adam",
    "optimizer",
    "Adam with decoupled weight decay",
    lambda args: AdamPlan(**args.values),
    Param(
        "learning_rate",
        "float",
        "step size",
        low=0,
        high=1,
        aliases="lr actor_lr actor_learning_rate policy_lr step_size",
    ),
    Param(
        "beta1",
        "float",
        "decay of the gradient's mean",
        0.9,
        low=0,
        below=1,
        aliases="adam_beta1 beta_1",
    ),
    Param(
        "beta2",
        "float",
        "decay of the squared gradient's mean",
        0.95,
        low=0,
        below=1,
        aliases="adam_beta2 beta_2",
    ),
    Param(
        "eps",
        "float",
        "added to the root of the squared mean",
        1e-8,
        above=0,
        high=1,
        aliases="adam_epsilon adam_eps",
    ),
    share("weight_decay", "decoupled weight decay", 0.0, aliases="wd adam_weight_decay"),
    Param(
        "grad_clip_norm",
        "float",
        "largest gradient norm; 0 for any",
        0.0,
        low=0,
        aliases=(
            "max_grad_norm grad_clip clip_grad gradient_clipping max_norm clip_grad_norm "
            "gradient_clip_val"
        ),
    ),
    Param(
        "schedule",
        "schedule",
        "learning rate over the steps",
        DEFAULT_SCHEDULE,
        aliases="lr_scheduler lr_scheduler_type lr_schedule scheduler",
    ),
    aliases="adamw adam_w adamw_torch",
    example="optimizer = adam(1e-4, grad_clip_norm = 1.0)",
)
