"""The records of models, trained ones and asked ones, and of how they sample."""

from __future__ import annotations

from rlc.records import Record, frozen


@frozen
class ModelPlan(Record):
    """A base model with a LoRA adapter: a fresh one, or that of a saved state."""

    name: str
    base: str
    lora_rank: int
    train_mlp: bool
    train_attn: bool
    train_unembed: bool
    weights: str | None  # path of the saved state to start from; None: a fresh adapter
    renderer: str
    context: int | None  # tokens; None if unknown
    service: str  # "local" or "tinker"


@frozen
class ModelState(Record):
    """A model as its declaration says, or with the weights that the stage ``after`` leaves.

    A field of this type is a model that a stage asks and does not train: a teacher, a judge. It
    has to be a field of a record: what is in a ``dict`` is read back from JSON as plain data.
    """

    model: ModelPlan
    after: str | None


@frozen
class Sampling(Record):
    """How a reply is sampled, wherever a model is asked for one.

    It has at most ``max_tokens`` tokens; None: what the context has left. ``temperature`` 0 and
    ``top_k`` 1 take the most likely token. A reply ends with any of the texts ``stop``, as it does
    with the renderer's own end of a turn.
    """

    max_tokens: int | None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1  # -1: all tokens
    stop: tuple[str, ...] = ()


@frozen
class SamplingPlan(Sampling):
    """How a stage samples its replies. ``max_prompt_tokens`` and ``max_episode_tokens`` limit a
    prompt, and a whole episode; ``concurrency`` the replies that are sampled at once."""

    max_prompt_tokens: int | None = None
    max_episode_tokens: int | None = None
    concurrency: int | None = None  # None: as many as the service bears


LOCAL, TINKER = SERVICES = ("local", "tinker")  # the embedded engine; Tinker, hosted or served
