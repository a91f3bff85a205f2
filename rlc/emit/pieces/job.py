"""What pieces read of their job: each script has these values and functions of its own, and of a
choice between them only what is chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

SEED = 1
STAGE = "main"
STEPS = 1
MODEL: Any = ""  # a saved state, or what a fresh adapter is made of
IS_SAVED = False
WITH_OPTIMIZER = False
RENDERER = ""
CONTEXT: int | None = None  # tokens
LEARNING_RATE = 1e-4
SCHEDULE = ""
WARMUP = 0
FLOOR = 1.0
ADAM: dict[str, float] = {}
LIMITS: dict[str, Any] = {}  # of a budget
SAVE_EVERY = 1
KEEP = 1
TTL: int | None = None
WANDB: Mapping[str, Any] | None = None
IS_EXPECTED = False
require: Callable[[Mapping[str, float]], None]

# Of a stage that plays episodes.
GROUPS = 1
TURNS = 0
PARALLEL = 0
UPDATES = 1
RETRIES = 0  # of a failed episode
MUST_NOT_FAIL = False
IS_MIXTURE = False
CURRICULA: Sequence[str] = ()  # the environments that have one
RESAMPLE = 0
IS_CREDITED = False  # rewards are reduced, or shaped
HAS_IMAGES = False  # or sounds
MAX_PROMPT_TOKENS: int | None = None
MAX_EPISODE_TOKENS: int | None = None
KEEPS = False
IS_PLAIN = True  # datums follow from episodes and advantages alone
REQUIRES = False
SCORERS: Sequence[Mapping[str, Any]] = ()
LOSS = ""
LOSS_CONFIG: dict[str, float] = {}
LOSS_INPUTS: Mapping[str, int] = {}
OF_MEANS = False  # of the tokens of a sequence
BY_SEQUENCE = False  # it counts as one token
READS_WEIGHT = False
READS_LOGPROBS = True
READS_MASK = False
PULLS = False
REACHES_PROMPT = False
IS_RECORDED = False
AGGREGATE = "token_sum"
LENGTH = 1
environments: Callable[[Any], Awaitable[list[Any]]]
advantages: Callable[[Sequence[Any]], Any]
kept: Callable[[Sequence[Any]], Any]
required: Callable[[Sequence[Any]], Any]
own_loss: Any

# Of a stage that learns from data.
BATCH = 1
IS_COMPARED = False  # with what is held out
COMPARE_EVERY = 1
REFERENCE: Mapping[str, str] = {}
IS_LABELLED = False
LIKELIHOOD = ""  # that a loss reads
NAMES: Sequence[str] = ()  # of the sides of a pair in its loss
TRAINED: Sequence[str] = ()  # of these
SLOPES: Mapping[str, Callable[..., Any]] = {}
loss: Callable[..., Any]
data_sets: Callable[[Any], list[Any]]
