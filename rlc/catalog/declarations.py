"""The declarations of the language and the fields of those that are blocks."""

from __future__ import annotations

from rlc.catalog.models import SERVICES, renderer_names
from rlc.catalog.records import Declaration, Param
from rlc.catalog.training import DEFAULT_FAILURE, DEFAULT_SAVE

# The types that a param can be declared with.
PARAM_TYPES = ("int", "float", "bool", "string", "money", "duration")

MODEL_FIELDS = (
    Param("base", "string", "a model of the catalogue, or a folder of this machine"),
    Param("lora_rank", "int", "rank of the LoRA adapter, a power of two", 32, low=1),
    Param("train_mlp", "bool", "adapt the feed-forward layers", True),
    Param("train_attn", "bool", "adapt the attention layers", True),
    Param("train_unembed", "bool", "adapt the output layer", True),
    Param(
        "renderer",
        "string",
        "how a chat becomes tokens; by default the one recommended for the model",
        None,
        choices=renderer_names,
        noun="renderer",
    ),
    Param(
        "service",
        "word",
        "where it is trained; by default where the model lives",
        None,
        choices=SERVICES,
        noun="service",
    ),
)

TRAIN_FIELDS = (
    Param("model", "model", "what is trained"),
    Param("env", "env", "what it is trained on; a weighted sum is a mixture"),
    Param("batch", "batch", "what one step collects"),
    Param("sampling", "sampling", "how replies are drawn"),
    Param("advantage", "advantage", "how much better than its peers a rollout was"),
    Param("loss", "loss", "what the gradient is taken of"),
    Param("optimizer", "optimizer", "how the gradient becomes an update"),
    Param("steps", "int", "number of updates", low=1),
    Param("save", "save", "when checkpoints are made; by default at the end", DEFAULT_SAVE),
    Param("on_error", "failure", "what becomes of a failed rollout", DEFAULT_FAILURE),
    Param("budget", "money", "most to spend; by default no limit", None, above=0, optional=True),
)

DECLARATIONS = {
    item.kind: item
    for item in (
        Declaration("param", "a value that the command line can set", value="param"),
        Declaration("model", "a base model with a fresh LoRA adapter", MODEL_FIELDS),
        Declaration("env", "an environment, or a mixture of several", value="env"),
        Declaration("advantage", "an advantage scheme", value="advantage"),
        Declaration("train", "a training stage", TRAIN_FIELDS),
    )
}
