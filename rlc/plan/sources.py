"""The data that a stage learns from, or holds out: each kind has its own fields, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeGuard

from rlc.plan.environments import EnvPlan
from rlc.plan.parts import KeepPlan, ModelState, SamplingPlan
from rlc.records import IF_ANY, Record, field, frozen

Split = str | Mapping[str, Any]
FIELD = "split"  # of a row: which split it belongs to


def base_split(split: Split) -> str:
    """Return the name of a split, or of the one that it is a part of."""
    return split if isinstance(split, str) else str(split["of"])


@frozen
class Data(Record):
    """Base of all data: ``word`` is the builtin that a recipe writes it with, ``compares`` is set
    if its examples are preferences, ``ratings`` are its fields that name numbers of a row."""

    word: ClassVar[str]
    compares: ClassVar[bool] = False
    ratings: ClassVar[tuple[str, ...]] = ()

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        """Return the environments whose episodes it has."""
        return ()

    @property
    def file(self) -> str | None:
        """Return the path of the file, or the name of the data set, of its rows; None without."""
        return None

    @property
    def read(self) -> str | None:
        """Return what it is read from: a file, a data set, a builder; None if it is played."""
        return self.file

    @property
    def soft_targets(self) -> tuple[ModelState, int] | None:
        """Return the model whose top-k logprobs are learnt, and k; None if tokens are learnt."""
        return None

    @property
    def from_policy(self) -> bool:
        """Return whether the model that is trained plays its episodes."""
        return False

    @property
    def by_oracle(self) -> bool:
        """Return whether an oracle of the environment plays its episodes, and no model."""
        return False


@frozen
class EpisodeData(Data):
    """Data that is made of ``count`` episodes, or of pairs of them, of one environment."""

    env: EnvPlan
    count: int

    @property
    def environments(self) -> tuple[EnvPlan, ...]:
        return (self.env,)


@frozen
class Demonstrations(EpisodeData):
    """Episodes with a reward of at least ``min_reward``, played by the environment's own ``oracle``
    or by the ``model`` that is trained."""

    word = "demonstrations"

    policy: Literal["oracle", "model"]
    min_reward: float

    @property
    def from_policy(self) -> bool:
        return self.policy == "model"

    @property
    def by_oracle(self) -> bool:
        return self.policy == "oracle"


@frozen
class Samples(EpisodeData):
    """Episodes that a ``model`` plays for another to learn from.

    Each task is played ``size`` times. Of those that ``keep`` chooses at most ``per_task`` (None:
    all) of one task are learnt from; at most ``tries`` episodes are played for each that is wanted.
    ``without``: the student learns without the ``system`` message that the model was given. With a
    ``top_k`` it learns the shares of the ``top_k`` tokens that the model gave the highest logprobs
    at each place.
    """

    word = "samples"

    model: ModelState
    keep: KeepPlan
    size: int
    per_task: int | None
    tries: int
    sampling: SamplingPlan
    without: Literal["system"] | None
    top_k: int | None

    @property
    def soft_targets(self) -> tuple[ModelState, int] | None:
        return None if self.top_k is None else (self.model, self.top_k)

    @property
    def kept_of_task(self) -> int:
        """Return how many episodes of a task can be learnt from, at most."""
        if self.keep.kind == "best":
            return 1
        return self.size if self.per_task is None else min(self.per_task, self.size)


@frozen
class PreferredPairs(EpisodeData):
    """Pairs that ``model`` makes: of ``samples`` replies to each task the best and the worst."""

    word = "preferred"
    compares = True

    model: ModelState
    samples: int


@frozen
class FileData(Data):
    """Rows of a file or data set ``path``: those of a ``split`` (:mod:`rlc.data.splits`; None:
    all), the first ``count`` of them (None: all). A row with more than ``max_tokens`` (None: the
    model's context) is ``too_long``."""

    path: str
    split: Any
    count: int | None
    max_tokens: int | None
    too_long: Literal["stop", "drop"]

    @property
    def file(self) -> str | None:
        return self.path


@frozen
class Rows(FileData):
    """Prompts and replies, by the names of their fields."""

    word = "rows"

    prompt: str
    reply: str


@frozen
class Chats(FileData):
    """Chats in the field ``messages`` (None: one of the usual names), of which the assistant's
    messages are trained on: ``all``, the ``last``, or those of the ``last_turn``."""

    word = "chats"

    messages: str | None
    train_on: Literal["all", "last", "last_turn"]


@frozen
class Pairs(FileData):
    """A ``prompt`` with a ``chosen`` and a ``rejected`` reply, the rating of each, and the
    ``margin`` between them: names of fields, None for the usual ones (:mod:`rlc.data.examples`)."""

    word = "pairs"
    compares = True
    ratings = ("chosen_rating", "rejected_rating", "margin")

    prompt: str | None
    chosen: str | None
    rejected: str | None
    chosen_rating: str | None = field(default=None, metadata={IF_ANY: True})
    rejected_rating: str | None = field(default=None, metadata={IF_ANY: True})
    margin: str | None = field(default=None, metadata={IF_ANY: True})


@frozen
class LabelledReplies(FileData):
    """A ``prompt`` with one ``reply``, a ``label`` that says whether it is good, and the reply's
    ``rating``: names of fields, None for the usual ones."""

    word = "labelled"
    compares = True
    ratings = ("rating",)

    prompt: str | None
    reply: str | None
    label: str | None
    rating: str | None = field(default=None, metadata={IF_ANY: True})


@frozen
class BuilderData(Data):
    """The examples that a ``builder`` of tinker-cookbook makes, called with ``args``; the rest as
    of :class:`FileData`."""

    word = "cookbook"

    builder: str
    args: dict[str, Any]
    split: str
    count: int | None
    max_tokens: int | None
    too_long: Literal["stop", "drop"]

    @property
    def read(self) -> str | None:
        return self.builder


RowData = Rows | Chats | Pairs | LabelledReplies
ReadData = RowData | BuilderData
AnyData = ReadData | Demonstrations | Samples | PreferredPairs
# By the word that a recipe makes them with.
DATA: dict[str, type[AnyData]] = {
    kind.word: kind
    for kind in (
        *(Demonstrations, Samples, Rows, Chats, BuilderData, Pairs, LabelledReplies),
        PreferredPairs,
    )
}


def has_rows(data: AnyData) -> TypeGuard[RowData]:
    """Return whether data has the rows of a file or data set."""
    return data.file is not None


def is_read(data: AnyData) -> TypeGuard[ReadData]:
    """Return whether data is read, and not played."""
    return data.read is not None
