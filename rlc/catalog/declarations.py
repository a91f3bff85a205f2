"""The declarations of the language and the fields of those that are blocks."""

from __future__ import annotations

from rlc.catalog.builtins.losses import DEFAULT_AGGREGATE
from rlc.catalog.builtins.training import (
    DEFAULT_BUDGET,
    DEFAULT_DEADLINES,
    DEFAULT_FAILURE,
    DEFAULT_GIVE_UP,
    DEFAULT_OVERLAP,
    DEFAULT_SAVE,
)
from rlc.catalog.facts.models import renderer_names
from rlc.catalog.records import MODEL_FOLDER, Declaration, Param, optional, word
from rlc.plan.records import SERVICES, MetricPlan

# The types that a param can be declared with.
PARAM_TYPES = ("int", "float", "bool", "string", "money", "duration")

MODEL_FIELDS = (
    Param(
        "base",
        "string",
        "a model of the catalogue, or a folder of this machine",
        file=MODEL_FOLDER,
    ),
    Param("lora_rank", "int", "rank of the LoRA adapter, a power of two", 32, low=1),
    Param("train_mlp", "bool", "adapt the feed-forward layers", True),
    Param("train_attn", "bool", "adapt the attention layers", True),
    Param("train_unembed", "bool", "adapt the output layer", True),
    optional(
        "weights",
        "string",
        "saved state to start from; none: a fresh adapter",
        form=(r"(tinker|local)://.+/weights/.+", "tinker://RUN/weights/NAME"),
    ),
    Param(
        "renderer",
        "string",
        "how a chat becomes tokens; by default the one recommended for the model",
        None,
        choices=renderer_names,
        noun="renderer",
    ),
    word(
        "service",
        "where it is trained; by default where the model lives",
        SERVICES,
        None,
        noun="service",
    ),
)

_STEPS = Param("steps", "int", "number of updates", None, low=1)
_EPOCHS = Param(
    "epochs", "int", "how often all tasks are gone through, instead of `steps`", None, low=1
)
_SAVE = Param("save", "save", "when checkpoints are made; by default at the end", DEFAULT_SAVE)
_BUDGET = Param("budget", "budget", "most to spend; by default no limit", DEFAULT_BUDGET)
_TRACK = Param("track", "tracker", "where metrics go beside the run folder", (), many=True)
_DEADLINES = Param("deadlines", "deadlines", "how long it waits for what", DEFAULT_DEADLINES)
_OPTIMIZER = Param("optimizer", "optimizer", "how the gradient becomes an update")

TRAIN_FIELDS = (
    Param("model", "model", "what is trained: a model, or an earlier stage's"),
    Param("env", "env", "what it is trained on; a weighted sum is a mixture"),
    Param("batch", "batch", "what one step collects"),
    Param("sampling", "sampling", "how replies are drawn"),
    Param("advantage", "advantage", "how much better than its peers a rollout was"),
    Param("aggregate", "aggregate", "how token losses add up", DEFAULT_AGGREGATE),
    Param("loss", "loss", "what the gradient is taken of"),
    optional("kl", "kl", "a penalty on leaving a reference; by default none"),
    _OPTIMIZER,
    Param("overlap", "overlap", "whether sampling and training overlap", DEFAULT_OVERLAP),
    _STEPS,
    _EPOCHS,
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
    Param("model", "model", "what is trained: a model, or an earlier stage's"),
    Param("data", "data", "what it learns to say"),
    Param("batch", "int", "examples in a step", 32, low=1, high=100_000),
    _OPTIMIZER,
    _STEPS,
    _EPOCHS,
    _SAVE,
    _DEADLINES,
    _BUDGET,
    _TRACK,
)

EVAL_FIELDS = (
    Param("model", "model", "what is evaluated: a model, or a stage's"),
    Param("env", "env", "what it is evaluated on"),
    Param("tasks", "int", "tasks that are played", 64, low=1, high=1_000_000),
    Param("samples", "int", "episodes of each task", 1, low=1, high=1_024),
    Param("sampling", "sampling", "how replies are drawn; by default as in the stage", None),
    Param("metrics", "metric", "what is counted", (MetricPlan("mean_reward", None),), many=True),
    optional("every", "int", "also after so many steps of the stage; none: at its end only", low=1),
    Param("first", "bool", "also before the first step of the stage", False),
)

STAGES = ("sft", "train", "eval")

DECLARATIONS = {
    item.kind: item
    for item in (
        Declaration("param", "a value that the command line can set", value="param"),
        Declaration("model", "a base model with a LoRA adapter", MODEL_FIELDS),
        Declaration("env", "an environment, or a mixture of several", value="env"),
        Declaration("advantage", "an advantage scheme", value="advantage"),
        Declaration("sft", "a stage of supervised training", SFT_FIELDS),
        Declaration("train", "a stage of reinforcement learning", TRAIN_FIELDS),
        Declaration("eval", "an evaluation", EVAL_FIELDS),
    )
}
