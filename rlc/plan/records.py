"""The plan: every value decided, nothing left to a default.

An immutable tree of plain values. Where each value came from is kept beside the tree, in
``Plan.provenance``, keyed by the dotted path of the leaf (``stages.main.optimizer.beta1``),
so that moving a line in a recipe leaves the content hash alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from rlc.algo.scheme import AdvantageScheme
from rlc.plan.distillation import SamplesPlan, TeacherPlan
from rlc.plan.environments import EnvPlan
from rlc.plan.limits import BudgetPlan, DeadlinesPlan, FailurePlan, GiveUpPlan, KlGuardPlan
from rlc.plan.models import ModelPlan, ModelState, SamplingPlan
from rlc.plan.preferences import PreferenceLossPlan, PreferencesPlan
from rlc.records import Record

if TYPE_CHECKING:
    from rlc.algo.expressions.program import Program
    from rlc.plan.expectations import ExpectationPlan
    from rlc.plan.graph.nodes import Graph

SCHEMA_VERSION = 3
REHEARSAL = "--rehearse"  # the origin of what a rehearsal changes

LOCAL, TINKER = SERVICES = ("local", "tinker")  # the embedded engine; Tinker, hosted or served

# Seconds for which Tinker keeps a checkpoint: between an hour and ten years.
SHORTEST_TTL, LONGEST_TTL = 3_600, 10 * 365 * 86_400


@frozen(eq=False, repr=False, slots=False)
class BatchPlan(Record):
    """What one step collects.

    ``groups``: ``count`` groups of ``size`` rollouts (an environment may have a size of its
    own). ``turns``: episodes from ``parallel`` environments (groups of one) until at least
    ``count`` turns, then a random subsample of exactly ``count``. The batch is split into
    ``updates`` optimiser updates. At most ``resample`` groups of equals are replaced by others.
    """

    kind: Literal["groups", "turns"]
    count: int
    size: int
    parallel: int | None
    updates: int
    resample: int = 0


@frozen(eq=False, repr=False, slots=False)
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
        """Whether it is one number for each sequence, which counts as the loss of one token."""
        return self.mean or (self.program is not None and self.program.shape == "sequence")


@frozen(eq=False, repr=False, slots=False)
class AggregatePlan(Record):
    """How token losses are weighted before the service sums them: the weights are folded into the
    advantages (:mod:`rlc.algo.aggregate`). ``length``: the divisor of ``seq_mean_token_sum_norm``.
    """

    kind: str
    length: int | None


@frozen(eq=False, repr=False, slots=False)
class SchedulePlan(Record):
    """Learning rate over the steps of a stage: up to the full rate in ``warmup`` steps, then
    constant, or down towards ``floor`` times the rate."""

    kind: Literal["constant", "linear", "cosine"]
    warmup: int
    floor: float


@frozen(eq=False, repr=False, slots=False)
class AdamPlan(Record):
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float  # 0 means no clipping
    schedule: SchedulePlan


@frozen(eq=False, repr=False, slots=False)
class KlPlan(Record):
    """A penalty on the distance from a reference, taken off the advantages. With a ``coef`` of 0
    there is none, and a loss reads the reference's logprobs.

    ``reference`` is a base model, or the path of a saved state. With a ``discount`` each token
    also answers for the later ones.
    """

    reference: str
    coef: float
    discount: float


@frozen(eq=False, repr=False, slots=False)
class OverlapPlan(Record):
    """Whether sampling and training overlap; the graph's edges say the same.

    ``streamed``: a batch is trained on in up to ``minibatches`` parts, as far as parts are enough
    (:func:`rlc.plan.graph.barriers`). Under the order ``ready`` a part is made of the groups that
    are in, under ``fixed`` of the same ones each time.
    ``asynchronous``: a rollout may be sampled from weights up to ``max_staleness`` steps old.
    """

    kind: Literal["synchronous", "streamed", "asynchronous"]
    minibatches: int
    max_staleness: int
    order: Literal["ready", "fixed"] | None = "fixed"  # None: as the service needs


@frozen(eq=False, repr=False, slots=False)
class SavePlan(Record):
    """A checkpoint after every ``every`` steps and at the end; the newest ``keep`` are kept, and
    with ``best`` the best. Beside these the states of the newest ``rolling`` steps, to resume."""

    every: int | None  # None: only at the end
    keep: int
    ttl_seconds: int | None
    best: bool
    rolling: int | None = 1  # None: none


@frozen(eq=False, repr=False, slots=False)
class TrackPlan(Record):
    """One place that metrics or rollouts are sent to, beside the run folder."""

    name: str
    args: dict[str, Any]


@frozen(eq=False, repr=False, slots=False)
class TrainPlan(Record):
    """One training stage. ``after`` names the stage whose weights it starts from."""

    name: str
    model: ModelPlan
    after: str | None
    envs: tuple[EnvPlan, ...]
    batch: BatchPlan
    sampling: SamplingPlan
    advantage: AdvantageScheme
    aggregate: AggregatePlan
    loss: LossPlan
    kl: KlPlan | None
    optimizer: AdamPlan
    overlap: OverlapPlan
    steps: int
    epochs: int | None  # where `steps` follows from it
    save: SavePlan
    on_error: FailurePlan
    budget: BudgetPlan
    track: tuple[TrackPlan, ...]
    give_up: GiveUpPlan | None
    deadlines: DeadlinesPlan
    kl_guard: KlGuardPlan | None
    teacher: tuple[TeacherPlan, ...] = ()


@frozen(eq=False, repr=False, slots=False)
class DataPlan(Record):
    """Demonstrations for supervised training.

    ``demonstrations``: ``count`` episodes of ``env`` with a reward of at least ``min_reward``,
    played by the environment's own ``oracle`` or by the ``model``. ``rows``: prompts and replies
    from the fields of a file's rows. ``chats``: the field ``messages`` of a file's rows (None: of
    the usual names), of which the assistant's are trained on: ``all``, the ``last``, or those of
    the ``last_turn``. ``samples``: ``count`` episodes of ``env``, as ``sampled`` says. Of a file,
    the rows of a ``split`` are taken (:mod:`rlc.data.splits`; None:
    all); one with more than ``max_tokens`` (None: the model's context) is ``too_long``.
    ``cookbook``: the examples that a ``builder`` of tinker-cookbook makes, called with ``args``.
    """

    kind: Literal["demonstrations", "rows", "chats", "samples", "cookbook"]
    env: EnvPlan | None
    count: int | None
    policy: Literal["oracle", "model"] | None
    min_reward: float | None
    path: str | None
    prompt: str | None
    reply: str | None
    messages: str | None = None
    train_on: Literal["all", "last", "last_turn"] | None = None
    max_tokens: int | None = None
    too_long: Literal["stop", "drop"] = "stop"
    split: Any = None
    sampled: SamplesPlan | None = None
    builder: str | None = None
    args: dict[str, Any] | None = None

    @property
    def read(self) -> str | None:
        """What its examples are read from: a file, a data set, a builder; None if they are
        played."""
        return self.path or self.builder


@frozen(eq=False, repr=False, slots=False)
class SftPlan(Record):
    """One supervised stage: log-likelihood of the replies, ``batch`` examples a step.

    The ``heldout`` examples are only scored: at the end, and ``every`` so many steps.
    """

    name: str
    model: ModelPlan
    after: str | None
    data: DataPlan
    batch: int
    optimizer: AdamPlan
    steps: int
    epochs: int | None  # where `steps` follows from it
    save: SavePlan
    budget: BudgetPlan
    track: tuple[TrackPlan, ...]
    deadlines: DeadlinesPlan
    heldout: DataPlan | None = None
    every: int | None = None


@frozen(eq=False, repr=False, slots=False)
class PreferencePlan(Record):
    """One stage that learns from preferences, ``batch`` of them a step.

    ``reference`` is what the loss compares the weights with, None for a loss without one. The
    ``heldout`` preferences are only compared: at the end, and ``every`` so many steps.
    """

    name: str
    model: ModelPlan
    after: str | None
    data: PreferencesPlan
    loss: PreferenceLossPlan
    reference: ModelState | None
    heldout: PreferencesPlan | None
    every: int | None
    batch: int
    optimizer: AdamPlan
    steps: int
    epochs: int | None  # where `steps` follows from it
    save: SavePlan
    budget: BudgetPlan
    track: tuple[TrackPlan, ...]
    deadlines: DeadlinesPlan


@frozen(eq=False, repr=False, slots=False)
class MetricPlan(Record):
    """``pass_at(8)``: the unbiased estimate of pass@8. ``k`` is None if the metric has none."""

    name: str
    k: int | None


@frozen(eq=False, repr=False, slots=False)
class EvalPlan(Record):
    """One evaluation: ``samples`` episodes of each of ``tasks`` tasks.

    Of the stage ``after`` it is done at its end; with ``every`` also after every so many of its
    steps, with ``first`` also before the first.
    """

    name: str
    model: ModelPlan
    after: str | None
    envs: tuple[EnvPlan, ...]
    tasks: int
    samples: int
    sampling: SamplingPlan
    metrics: tuple[MetricPlan, ...]
    every: int | None
    first: bool


TrainedPlan = TrainPlan | SftPlan | PreferencePlan  # stages that change the weights, step by step
StagePlan = TrainedPlan | EvalPlan
# By the word that a recipe declares them with.
STAGES: Mapping[str, type[StagePlan]] = {
    "train": TrainPlan,
    "sft": SftPlan,
    "preference": PreferencePlan,
    "eval": EvalPlan,
}
_KINDS = {stage: kind for kind, stage in STAGES.items()}


def data_of(stage: StagePlan) -> tuple[DataPlan | PreferencesPlan, ...]:
    """The data that a stage reads, beside its environments: what it learns from comes first."""
    if not isinstance(stage, SftPlan | PreferencePlan):
        return ()
    return (stage.data,) if stage.heldout is None else (stage.data, stage.heldout)


def environments_of(stage: StagePlan) -> tuple[EnvPlan, ...]:
    """The environments that a stage plays."""
    return (*getattr(stage, "envs", ()), *(d.env for d in data_of(stage) if d.env is not None))


def kind_of(stage: StagePlan) -> str:
    """The word that a recipe declares the stage with."""
    return _KINDS[type(stage)]


@frozen(eq=False, repr=False, slots=False)
class DataFile(Record):
    """The contents of a file that a plan names: bytes, and their BLAKE2b digest of 32 bytes."""

    path: str
    size: int
    digest: str


@frozen(eq=False, repr=False, slots=False)
class Plan(Record):
    """A whole job, with every value decided; :meth:`rlc.Recipe.plan` returns one.

    Attributes:
        recipe: the path of the recipe.
        seed: the seed of every random choice.
        stages: the records of the stages, in the order they run.
        graph: the job graph: nodes and edges of all stages.
        provenance: the origin of each value, by dotted path (``stages.main.steps``).
        schema_version: of its JSON; its hash leaves out ``recipe`` and ``provenance``.
        data: what is in the data files that the stages name; empty if they were not read.
        expectations: what the recipe says must hold before the run, or after it.
    """

    recipe: str
    seed: int
    stages: tuple[StagePlan, ...]
    graph: Graph
    provenance: dict[str, str] = field(factory=dict, eq=False)
    schema_version: int = SCHEMA_VERSION
    data: tuple[DataFile, ...] = ()
    expectations: tuple[ExpectationPlan, ...] = ()

    @property
    def rehearses(self) -> bool:
        """Whether it is a small version of a job, which need not learn anything."""
        return REHEARSAL in self.provenance.values()

    def _repr_html_(self) -> str:
        from html import escape  # for notebooks alone

        title = f"<b>{escape(self.recipe)}</b> &nbsp; plan with seed {self.seed}"
        rows = [("stage", "kind", "steps", "model", "service")]
        for stage in self.stages:
            steps = "" if isinstance(stage, EvalPlan) else f"{stage.steps:,}"
            model = f"{stage.model.base}, from {stage.after}" if stage.after else stage.model.base
            rows.append((stage.name, kind_of(stage), steps, model, stage.model.service))
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        return f"<div>{title}{table}<code>rlc.explain(plan)</code> has its formulas and cost</div>"
