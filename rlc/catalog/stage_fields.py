"""The fields of stages: what trains, and what evaluates."""

from __future__ import annotations

from rlc.catalog.builtins.distillation import NO_ADVANTAGE
from rlc.catalog.builtins.losses import DEFAULT_AGGREGATE
from rlc.catalog.builtins.training import (
    DEFAULT_BUDGET,
    DEFAULT_DEADLINES,
    DEFAULT_FAILURE,
    DEFAULT_GIVE_UP,
    DEFAULT_OVERLAP,
    DEFAULT_SAVE,
)
from rlc.catalog.records import Param, optional
from rlc.plan.parts import MetricPlan

_MODEL = Param("model", "model", "what is trained: a model, or an earlier stage's")
_STEPS = Param(
    "steps",
    "int",
    "number of updates",
    None,
    low=1,
    aliases=(
        "max_steps total_steps num_steps training_steps total_training_steps n_steps "
        "num_train_steps"
    ),
)
_EPOCHS = Param(
    "epochs",
    "int",
    "how often all tasks are gone through, instead of `steps`",
    None,
    low=1,
    aliases="num_epochs num_train_epochs total_epochs n_epochs max_epochs",
)
_SAVE = Param(
    "save",
    "save",
    "when checkpoints are made; by default at the end",
    DEFAULT_SAVE,
    aliases="checkpoint checkpoints save_strategy",
)
_BUDGET = Param(
    "budget", "budget", "most to spend; by default no limit", DEFAULT_BUDGET, aliases="max_budget"
)
_TRACK = Param(
    "track",
    "tracker",
    "where metrics go beside the run folder",
    (),
    many=True,
    aliases="logger loggers report_to log_to",
)
_DEADLINES = Param(
    "deadlines",
    "deadlines",
    "how long it waits for what",
    DEFAULT_DEADLINES,
    aliases="timeout timeouts",
)
_OPTIMIZER = Param(
    "optimizer", "optimizer", "how the gradient becomes an update", aliases="optim optimiser"
)


def _heldout(kind: str, what: str, also: bool = True) -> tuple[Param, Param]:
    """``also``: under the names of other libraries, where those mean the same."""
    return (
        optional(
            "heldout",
            kind,
            f"{what} and not learnt from, at the end; by default none",
            aliases="eval_dataset test_dataset holdout eval_data validation" if also else "",
        ),
        optional(
            "every",
            "int",
            "the held-out ones are compared after so many steps too; none: at the end only",
            low=1,
            aliases="eval_every eval_steps eval_interval" if also else "",
        ),
    )


def _batch(doc: str) -> Param:
    names = "batch_size train_batch_size per_device_train_batch_size bs"
    return Param("batch", "int", doc, 32, low=1, high=100_000, aliases=names)


TRAIN_FIELDS = (
    _MODEL,
    Param(
        "env",
        "env",
        "what it is trained on; a weighted sum is a mixture",
        aliases="environment envs environments",
    ),
    Param("batch", "batch", "what one step collects"),
    Param(
        "sampling",
        "sampling",
        "how replies are drawn",
        aliases="generation generation_config sampling_params sampling_config",
    ),
    Param(
        "advantage",
        "advantage",
        "how much better than its peers a rollout was; may be left out where a teacher scores",
        implied=("teacher", NO_ADVANTAGE),
        aliases="adv_estimator advantage_estimator algorithm algo estimator",
    ),
    Param(
        "aggregate",
        "aggregate",
        "how token losses add up",
        DEFAULT_AGGREGATE,
        aliases="loss_agg_mode loss_aggregation aggregation",
    ),
    Param(
        "loss",
        "loss",
        "what the gradient is taken of",
        aliases="loss_fn loss_type policy_loss objective",
    ),
    optional(
        "kl",
        "kl",
        "a penalty on leaving a reference; by default none",
        aliases="kl_penalty ref reference",
    ),
    Param(
        "teacher",
        "teacher",
        "a model that scores each token, or one for each environment; by default none",
        (),
        named=True,
        aliases="teachers teacher_model distillation distill",
    ),
    _OPTIMIZER,
    Param("overlap", "overlap", "whether sampling and training overlap", DEFAULT_OVERLAP),
    _STEPS,
    _EPOCHS,
    *_heldout("data", "examples whose log-likelihood is scored", also=False),
    _SAVE,
    Param("on_error", "failure", "what becomes of a failed rollout", DEFAULT_FAILURE),
    Param(
        "give_up", "give_up", "when so much fails that the run ends", DEFAULT_GIVE_UP, optional=True
    ),
    _DEADLINES,
    optional(
        "kl_guard",
        "kl_guard",
        "what happens where trainer and sampler drift apart; by default nothing",
    ),
    _BUDGET,
    _TRACK,
)

SFT_FIELDS = (
    _MODEL,
    Param("data", "data", "what it learns to say", aliases="dataset train_dataset train_data"),
    _batch("examples in a step"),
    _OPTIMIZER,
    _STEPS,
    _EPOCHS,
    *_heldout("data", "examples that are scored"),
    _SAVE,
    _DEADLINES,
    _BUDGET,
    _TRACK,
)

PREFERENCE_FIELDS = (
    _MODEL,
    Param(
        "data",
        "preferences",
        "which replies are better, or good",
        aliases="dataset train_dataset train_data pairs preferences",
    ),
    Param(
        "loss",
        "preference_loss",
        "what the gradient is taken of",
        aliases="loss_fn loss_type objective algorithm",
    ),
    Param(
        "reference",
        "model",
        "what the loss compares with: a model, or a stage; by default what the stage starts from",
        None,
        aliases="ref ref_model reference_model reference_model_name",
    ),
    _batch("pairs, or labelled replies, in a step"),
    _OPTIMIZER,
    _STEPS,
    _EPOCHS,
    *_heldout("preferences", "preferences that are compared"),
    _SAVE,
    _DEADLINES,
    _BUDGET,
    _TRACK,
)

EVAL_FIELDS = (
    Param("model", "model", "what is evaluated: a model, or a stage's"),
    Param("env", "env", "what it is evaluated on"),
    Param(
        "tasks",
        "int",
        "tasks that are played",
        64,
        low=1,
        high=1_000_000,
        aliases="num_tasks n_tasks num_examples max_examples limit",
    ),
    Param(
        "samples",
        "int",
        "episodes of each task",
        1,
        low=1,
        high=1_024,
        aliases="num_samples n_samples num_rollouts_per_task n k",
    ),
    Param("sampling", "sampling", "how replies are drawn; by default as in the stage", None),
    Param(
        "metrics",
        "metric",
        "what is counted",
        (MetricPlan("mean_reward", None),),
        many=True,
        aliases="metric",
    ),
    optional(
        "every",
        "int",
        "also after so many steps of the stage; none: at its end only",
        low=1,
        aliases="eval_every eval_steps eval_interval eval_freq test_freq",
    ),
    Param(
        "first",
        "bool",
        "also before the first step of the stage",
        False,
        aliases="eval_on_start val_before_train",
    ),
)
