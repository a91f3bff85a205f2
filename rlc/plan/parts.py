"""The parts of a stage: models, sampling, batches, losses, optimisers, teachers, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rlc.records import IF_ANY, Record, evolve, field, field_names, frozen

if TYPE_CHECKING:
    from rlc.algo import Program


@frozen
class PricePlan(Record):
    """Prices that a user states: USD per million tokens of each kind, and of a checkpoint that is
    kept for a month; None: unknown. ``as_of`` is the oldest of their dates, ``source`` says who
    states which."""

    prefill: float | None
    cached: float | None
    sample: float | None
    train: float | None
    checkpoint: float | None
    as_of: str | None
    source: str


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
    service: str  # "local", or the name of a provider
    with_optimizer: bool = False  # the state of the optimiser that was saved with the weights, too
    # That the user states; None: those of the catalogue. No plan is another for its prices.
    price: PricePlan | None = field(default=None, eq=False, metadata={IF_ANY: True})

    @property
    def hosted(self) -> bool:
        return is_hosted(self.service)


@frozen
class ModelState(Record):
    """A model as its declaration says, or with the weights that the stage ``after`` leaves.

    A field of this type is a model that a stage asks and does not train: a teacher, a judge. It
    has to be a field of a record: what is in a ``dict`` is read back from JSON as plain data.
    """

    model: ModelPlan
    after: str | None


_S = TypeVar("_S", bound="Sampling")


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

    @property
    def shaping(self) -> dict[str, float]:
        """Return the settings by which replies are drawn from another distribution than the
        model's."""
        found = {}
        if self.temperature != 1:
            found["temperature"] = self.temperature
        if self.top_p < 1:
            found["top_p"] = self.top_p
        if self.top_k > 0:
            found["top_k"] = self.top_k
        return found

    def sampled(self: _S, sampling: Sampling) -> _S:
        """Return this with its replies sampled in another way."""
        return evolve(self, **{name: getattr(sampling, name) for name in field_names(Sampling)})


@frozen
class SamplingPlan(Sampling):
    """How a stage samples its replies. ``max_prompt_tokens`` and ``max_episode_tokens`` limit a
    prompt, and a whole episode; ``concurrency`` the replies that are sampled at once."""

    max_prompt_tokens: int | None = None
    max_episode_tokens: int | None = None
    concurrency: int | None = None  # None: as many as the service bears


LOCAL, TINKER = "local", "tinker"  # the embedded engine; Tinker, hosted or served


def is_hosted(service: str) -> bool:
    """Return whether a service is another than the embedded engine of this machine."""
    return service != LOCAL


@frozen
class BatchPlan(Record):
    """What one step collects.

    ``groups``: ``count`` groups of ``size`` rollouts (an environment may have a size of its
    own). ``turns``: episodes from ``parallel`` environments (groups of one) until at least
    ``count`` turns, or ``most_lost`` lost replies, then a random subsample of at most ``count``.
    The batch is split into ``updates`` optimiser updates. At most ``resample`` groups of equals are
    replaced by others.
    """

    kind: Literal["groups", "turns"]
    count: int
    size: int
    parallel: int | None
    updates: int
    resample: int = 0

    @property
    def at_once(self) -> int:
        """Return how many groups a step plays side by side."""
        return self.count if self.kind == "groups" else self.parallel or self.count

    @property
    def most_lost(self) -> int:
        """Return how many replies a step may lose, with rollouts that fail, before it plays no more
        for its turns."""
        return self.count


@frozen
class LossPlan(Record):
    """A loss of the service, with its whole configuration (nothing left to the server), or a
    recipe's own.

    ``program`` is that of a recipe's own, which the service computes as a custom loss; None: the
    service has a loss of that ``name``. ``mean``: each sequence counts with the mean of what the
    service sums over its tokens.
    """

    name: str
    config: dict[str, float]
    program: Program | None = None
    mean: bool = False

    @property
    def by_sequence(self) -> bool:
        """Return whether it is one number for each sequence, counted as the loss of one token."""
        return self.mean or (self.program is not None and self.program.shape == "sequence")


@frozen
class PreferenceLossPlan(Record):
    """A loss over preferences, by its name in the catalogue, with its settings, or the ``program``
    of a recipe's own."""

    name: str
    config: dict[str, float]
    program: Program | None = None


@frozen
class AggregatePlan(Record):
    """How token losses are weighted before the service sums them: the weights are folded into the
    advantages (:mod:`rlc.algo.aggregate`). ``length``: the divisor of ``seq_mean_token_sum_norm``.
    """

    kind: str
    length: int | None


@frozen
class SchedulePlan(Record):
    """Learning rate over the steps of a stage: up to the full rate in ``warmup`` steps, then
    constant, or down towards ``floor`` times the rate."""

    kind: Literal["constant", "linear", "cosine"]
    warmup: int
    floor: float


@frozen
class AdamPlan(Record):
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float  # 0 means no clipping
    schedule: SchedulePlan


@frozen
class KlPlan(Record):
    """A penalty on the distance from a reference, taken off the advantages. With a ``coef`` of 0
    there is none, and a loss reads the reference's logprobs.

    With a ``discount`` each token also answers for the later ones. With a ``final`` coefficient it
    goes there from ``coef``, in even steps from the first of the stage to the last.
    """

    reference: ModelState
    coef: float
    discount: float
    final: float | None = field(default=None, metadata={IF_ANY: True})

    def at(self, step: int, steps: int) -> KlPlan:
        """Return the penalty of one of the ``steps`` of a stage."""
        if self.final is None or steps == 1:
            return self
        share = (step - 1) / (steps - 1)
        return evolve(self, coef=(1 - share) * self.coef + share * self.final)


@frozen
class OverlapPlan(Record):
    """Whether sampling and training overlap; the graph's edges say the same.

    ``streamed``: a batch is trained on in up to ``minibatches`` parts, as far as parts are enough
    (:func:`rlc.plan.graph.barriers`). Under the order ``ready`` a part is made of the groups that
    are in, under ``fixed`` of the same ones each time. It may also be asynchronous.
    ``asynchronous``: a rollout may be sampled from weights up to ``max_staleness`` steps old; if
    that is 0, steps are ``synchronous``.
    """

    kind: Literal["synchronous", "streamed", "asynchronous"]
    minibatches: int
    max_staleness: int
    order: Literal["ready", "fixed"] | None = "fixed"  # None: as the service needs

    @property
    def overlaps(self) -> bool:
        """Return whether anything of a step may go on beside anything else."""
        return self.minibatches > 1 or self.max_staleness > 0


@frozen
class SavePlan(Record):
    """A checkpoint after every ``every`` steps and at the end; the newest ``keep`` are kept, and
    with ``best`` the best. Beside these the states of the newest ``rolling`` steps, to resume."""

    every: int | None  # None: only at the end
    keep: int
    ttl_seconds: int | None
    best: bool
    rolling: int | None = 1  # None: none


@frozen
class TrackPlan(Record):
    """One place that metrics or rollouts are sent to, beside the run folder."""

    name: str
    args: dict[str, Any]


@frozen
class MetricPlan(Record):
    """``pass_at(8)``: the unbiased estimate of pass@8. ``k`` is None if the metric has none."""

    name: str
    k: int | None


@frozen
class FailurePlan(Record):
    """What happens to a rollout whose environment or sampling call fails: it is played again
    up to ``retries`` times, then dropped, or counted with the reward ``penalty``, or the run
    stops."""

    retries: int
    then: Literal["drop", "stop", "penalise"]
    penalty: float | None


@frozen
class GiveUpPlan(Record):
    """When a run is hopeless: in ``steps`` steps in a row at least ``share`` of the rollouts
    failed."""

    steps: int
    share: float


@frozen
class DeadlinesPlan(Record):
    """How long a stage waits, in seconds, before it ends with what it waited for.

    ``request``: for an answer of the service, while nothing else is answered. ``unreachable``: for
    a server that cannot be reached. ``step``: from one finished step to the next; None: for ever.
    """

    request: float
    unreachable: float
    step: float | None


@frozen
class PlayersPlan(Record):
    """Who plays the episodes of a stage: the process of the run (``here``), ``count`` others of its
    machine, or actors of a Ray cluster, each of which reserves ``cpus`` and ``resources`` of a node
    (``address`` None: the cluster of the program). A ``count`` of None: as many as there is room
    for."""

    kind: Literal["here", "processes", "ray"]
    count: int | None = None
    cpus: float = 1.0
    resources: dict[str, Any] = field(factory=dict)
    address: str | None = None


@frozen
class KlGuardPlan(Record):
    """What happens once the trainer's logprobs are further from the sampler's than ``max``
    (nats a token, mean of d²/2)."""

    max: float
    then: Literal["warn", "synchronous", "stop"]


@frozen
class BudgetPlan(Record):
    """What a stage may use before it stops with a checkpoint; None: no limit."""

    usd: float | None
    tokens: int | None
    seconds: float | None


@frozen
class TeacherPlan(Record):
    """A model that says of each token that the trained one samples how likely it finds it, or which
    ones it finds most likely in its place.

    ``name``: the environment whose episodes it reads; None: all of them. ``kind`` is the name of
    the builtin. What it says counts ``coef`` times, in the advantages or, of its ``top_k``
    most likely tokens, in the loss; with a ``discount`` each token also answers for the later ones.

    The prompt that it reads has ``system`` as its system message (None: the environment's own),
    and shows the field ``demonstration`` of the task's row (None: nothing).
    """

    name: str | None
    kind: Literal["reverse_kl", "forward_kl"]
    model: ModelState
    coef: float
    discount: float
    system: str | None
    demonstration: str | None
    top_k: int | None = None


@frozen
class KeepPlan(Record):
    """Which of the episodes of a task are learnt from: ``all`` that did not fail, those that are
    ``solved``, the ``best`` one, those with a reward of ``at_least`` ``reward``, or those that a
    ``function`` of the user's own chooses."""

    kind: Literal["all", "solved", "best", "at_least", "function"]
    reward: float | None = None
    function: str | None = field(default=None, metadata={IF_ANY: True})
    args: dict[str, Any] | None = field(default=None, metadata={IF_ANY: True})


def teacher_of(teachers: tuple[TeacherPlan, ...], env: str) -> TeacherPlan | None:
    """Return the teacher of an environment, by its name."""
    return next((one for one in teachers if one.name in (None, env)), None)
