"""What training stages of all kinds offer to the loop that drives them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.graph import Inputs, NodeContext, Parts, StepFunction, StepOutcome
from rlc.runtime.journal.database import Meter, StoredStep
from rlc.runtime.journal.episodes import EpisodeTokens
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.players.stage import JobPlayers
from rlc.runtime.records import Failure, TrainedSample
from rlc.runtime.summary import Observer
from rlc.runtime.updates import optimizer
from rlc.runtime.updates.optimizer import UpdateResult
from rlc.runtime.updates.scorers import LogprobScorers, ReferenceReplies
from rlc.runtime.weights import PendingCheckpoint, StageWeights


@frozen(eq=False)
class Setup:
    """The arguments for opening a stage, among them the steps that are ``done``."""

    folder: RunFolder
    weights: StageWeights
    meter: Meter
    auxiliary: AuxiliaryModels
    observer: Observer
    done: Sequence[StoredStep]
    players: JobPlayers

    @property
    def seed(self) -> int:
        return self.folder.plan.seed

    @property
    def tokenizer(self) -> Any:
        return self.weights.training.get_tokenizer()


@frozen(eq=False)
class StepReport:
    """The results of a finished step for the journal and the files of the run. ``tokens`` are those
    of the episodes that it trained on, ``lesson`` is a row that it learnt from."""

    metrics: dict[str, Any]
    checkpoint: PendingCheckpoint | None
    rollouts: list[dict[str, Any]] = field(factory=list)
    failures: list[Failure] = field(factory=list)
    cursor: dict[str, Any] = field(factory=dict)
    comparisons: list[dict[str, Any]] = field(factory=list)
    tokens: list[EpisodeTokens] = field(factory=list)
    lesson: TrainedSample | None = None


ScorerT = TypeVar("ScorerT", bound=LogprobScorers | ReferenceReplies)


@define(eq=False)
class Stage(ABC, Generic[ScorerT]):
    """A training stage in progress; ``scorers`` score the samples of a step, by their node."""

    seed: int
    weights: StageWeights
    meter: Meter
    scorers: Mapping[str, ScorerT]

    @abstractmethod
    def functions(self) -> Mapping[str, StepFunction]:
        """Return the function of each kind of node in the step graph."""

    @abstractmethod
    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return the results of a step and forget what was kept for it."""

    async def close(self) -> None:
        """Release the resources of the stage besides its weights."""
        for scorers in self.scorers.values():
            await scorers.close()

    async def optim_step(self, node: NodeContext, inputs: Inputs) -> UpdateResult:
        """Submit the last update and wait for all; none if no datum had an advantage."""
        parts = Parts.of(inputs["forward_backward"])
        update = await optimizer.finish_updates(
            self.weights.training, self.weights.plan, node.step, parts
        )
        self.weights.step = node.step
        usage = self.meter.running[node.step]
        usage.trained, usage.prefill = update.trained, usage.prefill + update.prefill
        return update

    def record_usage(self) -> None:
        """Journal the tokens that running steps have used so far."""
        self.meter.write()
        for scorers in self.scorers.values():
            scorers.write()
