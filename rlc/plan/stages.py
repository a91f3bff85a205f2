"""The stages of a plan: what trains is a source and an objective, the rest evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeGuard, TypeVar

from rlc.algo import AdvantageScheme
from rlc.plan.environments import EnvPlan
from rlc.plan.leaves import INLINE
from rlc.plan.parts import (
    AdamPlan,
    AggregatePlan,
    BatchPlan,
    BudgetPlan,
    DeadlinesPlan,
    FailurePlan,
    GiveUpPlan,
    KlGuardPlan,
    KlPlan,
    LossPlan,
    MetricPlan,
    ModelPlan,
    ModelState,
    OverlapPlan,
    PlayersPlan,
    PreferenceLossPlan,
    SamplingPlan,
    SavePlan,
    TeacherPlan,
    TrackPlan,
)
from rlc.records import IF_ANY, Record, field, fields, frozen

if TYPE_CHECKING:
    from rlc.plan.sources import AnyData


_INLINE = {INLINE: True}


@frozen
class Rollouts(Record):
    """A source: episodes that the model that is trained plays in each step."""

    made_of: ClassVar[str] = "envs"  # the field that a stage with it has

    envs: tuple[EnvPlan, ...]
    batch: BatchPlan
    sampling: SamplingPlan
    overlap: OverlapPlan
    on_error: FailurePlan
    give_up: GiveUpPlan | None
    kl_guard: KlGuardPlan | None
    # Who plays them; None: as the machine of the run has room. No plan is another for its players.
    players: PlayersPlan | None = field(default=None, eq=False, metadata={IF_ANY: True})

    @property
    def size(self) -> int:
        """Return how many groups, or turns, a step takes."""
        return self.batch.count

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        return self.envs


@frozen
class FromData(Record):
    """A source: ``batch`` examples of ``data`` in each step."""

    made_of: ClassVar[str] = "data"

    data: AnyData
    batch: int

    @property
    def size(self) -> int:
        """Return how many examples a step takes."""
        return self.batch

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        return self.data.environments


Source = Rollouts | FromData
P = TypeVar("P")


@frozen
class PolicyGradient(Record):
    """An objective: sampled tokens, weighed by their advantages. ``observations`` is the weight of
    the log-likelihood of what comes between replies, None if it is not learnt."""

    word: ClassVar[str] = "train"
    labelled: ClassVar[bool] = False

    advantage: AdvantageScheme
    aggregate: AggregatePlan
    loss: LossPlan
    kl: KlPlan | None
    teacher: tuple[TeacherPlan, ...] = ()
    observations: float | None = None


@frozen
class Likelihood(Record):
    """An objective: the log-likelihood of the replies of examples."""

    word: ClassVar[str] = "sft"
    labelled: ClassVar[bool] = False


@frozen
class PreferenceLoss(Record):
    """An objective: replies that are better, or good, become likelier than others.

    ``reference`` is what the loss compares the weights with, None for a loss without one.
    """

    word: ClassVar[str] = "preference"
    labelled: ClassVar[bool] = False

    loss: PreferenceLossPlan
    reference: ModelState | None


@frozen
class PairwisePreference(PreferenceLoss):
    """Of two replies to a prompt one is better."""


@frozen
class LabelledPreference(PreferenceLoss):
    """Each reply is good or bad by itself."""

    labelled = True


Objective = PolicyGradient | Likelihood | PairwisePreference | LabelledPreference


@frozen
class Training(Record):
    """A stage that changes weights, step by step. ``after`` names the stage whose weights it starts
    from.

    The ``heldout`` data is only scored: at the end, and ``every`` so many steps.
    """

    trains: ClassVar[bool] = True
    metrics: ClassVar[tuple[MetricPlan, ...]] = ()

    name: str
    model: ModelPlan
    after: str | None
    source: Source = field(metadata=_INLINE)
    objective: Objective = field(metadata=_INLINE)
    optimizer: AdamPlan
    steps: int
    epochs: int | None  # where `steps` follows from it
    save: SavePlan
    budget: BudgetPlan
    track: tuple[TrackPlan, ...]
    deadlines: DeadlinesPlan
    heldout: AnyData | None = None
    every: int | None = None

    @property
    def kind(self) -> str:
        """Return the word that a recipe declares the stage with."""
        return self.objective.word

    @property
    def data(self) -> tuple[AnyData, ...]:
        """Return the data that it reads or makes: what it learns from comes first."""
        learnt = (self.source.data,) if isinstance(self.source, FromData) else ()
        return learnt if self.heldout is None else (*learnt, self.heldout)

    @property
    def rollouts(self) -> Rollouts | None:
        """Return the source of its rollouts; None if it learns from data."""
        return self.source if isinstance(self.source, Rollouts) else None

    def of(self, kind: type[P]) -> P:
        """Return the source or objective that is of a class. Raise TypeError if neither is."""
        for part in (self.source, self.objective):
            if isinstance(part, kind):
                return part
        raise TypeError(f"{self.name} has no {kind.__name__}")

    @property
    def policy_gradient(self) -> PolicyGradient | None:
        """Return its objective, if it is a policy gradient."""
        return self.objective if isinstance(self.objective, PolicyGradient) else None

    @property
    def preference(self) -> PreferenceLoss | None:
        """Return its objective, if it is one over preferences."""
        return self.objective if isinstance(self.objective, PreferenceLoss) else None

    @property
    def played(self) -> tuple[EnvPlan, ...]:
        """Return the environments that it plays in each step."""
        return () if self.rollouts is None else self.rollouts.envs

    @property
    def sampling(self) -> SamplingPlan | None:
        """Return how the replies of its rollouts are sampled; None if it learns from data."""
        return None if self.rollouts is None else self.rollouts.sampling

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        """Return the environments that it plays, in its steps or to make its data."""
        heldout = () if self.heldout is None else self.heldout.environments
        return (*self.source.environments, *heldout)


@frozen
class Evaluation(Record):
    """A stage that evaluates: ``samples`` episodes of each of ``tasks`` tasks.

    Of the stage ``after`` it is done at its end; with ``every`` also after every so many of its
    steps, with ``first`` also before the first.
    """

    trains: ClassVar[bool] = False
    kind: ClassVar[str] = "eval"
    source: ClassVar[None] = None
    objective: ClassVar[None] = None
    steps: ClassVar[None] = None
    track: ClassVar[tuple[TrackPlan, ...]] = ()
    data: ClassVar[tuple[AnyData, ...]] = ()
    heldout: ClassVar[None] = None
    rollouts: ClassVar[None] = None
    policy_gradient: ClassVar[None] = None
    preference: ClassVar[None] = None

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
    players: PlayersPlan | None = field(default=None, eq=False, metadata={IF_ANY: True})

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        return self.envs

    @property
    def played(self) -> tuple[EnvPlan, ...]:
        return self.envs


StagePlan = Training | Evaluation
OBJECTIVES: list[type[Objective]]
OBJECTIVES = [PolicyGradient, Likelihood, PairwisePreference, LabelledPreference]
SOURCES: list[type[Source]] = [Rollouts, FromData]
T = TypeVar("T")


def stage_of(word: str, name: str, parts: Mapping[str, Any], labelled: bool = False) -> StagePlan:
    """Return the stage that is declared with a word, of parts named as by
    :func:`rlc.plan.leaves.children_of`. ``labelled``: its loss is one over labelled replies."""
    if word == Evaluation.kind:
        return Evaluation(name=name, **parts)
    source = next(kind for kind in SOURCES if kind.made_of in parts)
    objective = next(kind for kind in OBJECTIVES if (kind.word, kind.labelled) == (word, labelled))

    def own(kind: type[Any]) -> dict[str, Any]:
        names = (one.name for one in fields(kind) if not one.metadata.get(INLINE))
        return {name: parts[name] for name in names if name in parts}

    inline: dict[str, type[Any]] = {"source": source, "objective": objective}
    made: dict[str, Any] = {field: kind(**own(kind)) for field, kind in inline.items()}
    return Training(name=name, **made, **own(Training))


def is_evaluation(stage: StagePlan) -> TypeGuard[Evaluation]:
    """Return whether a stage evaluates, and changes no weights."""
    return not stage.trains


def is_training(stage: StagePlan) -> TypeGuard[Training]:
    """Return whether a stage changes weights."""
    return stage.trains


class Table(Generic[T]):
    """Entries by the kind of a stage: one for each objective (or each source, with ``by =
    "source"``), under its class or a base of it, and one for :class:`Evaluation` if evaluations are
    looked up. ``tables`` are all tables: a test finds an entry that is missing."""

    tables: ClassVar[list[Table[Any]]] = []

    def __init__(
        self, entries: Mapping[type[Any], T], by: Literal["objective", "source"] = "objective"
    ) -> None:
        self.entries, self.by = entries, by
        self.tables.append(self)

    def __getitem__(self, stage: StagePlan) -> T:
        """Return the entry of a stage. Raise KeyError if it has none."""
        return self.of(type(getattr(stage, self.by) or stage))

    def of(self, kind: type[Any]) -> T:
        """Return the entry of a class. Raise KeyError if it has none."""
        return self.entries[next((k for k in kind.__mro__ if k in self.entries), kind)]
