"""Episodes that are played for a stage to learn from: each once, then kept in the run folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import asdict, define, field, frozen

from rlc.catalog.builtins.training import DEFAULT_FAILURE
from rlc.plan.environments import RolloutsPlan
from rlc.plan.models import ModelPlan
from rlc.plan.records import LOCAL, SamplingPlan
from rlc.runtime.concurrency import all_of
from rlc.runtime.guard.meter import PROBES, Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.roles import play_task
from rlc.runtime.rollouts.tasks import Task, TaskStream
from rlc.runtime.updates.datums import TokenSequence, merged_sequences
from rlc.service.interface import SamplingClient

Play = Callable[[Task], Awaitable[list[Rollout]]]

WAVE, LARGE_WAVE = 64, 512  # tasks played side by side: on this machine, on a server


@frozen
class Sample:
    """One episode as it is kept: what was written in it, and what it earned.

    ``task`` numbers the environment's tasks in the order they were drawn, ``digest`` is the same
    for all episodes from one first observation. One that failed has no ``sequences``.
    """

    env: str
    task: int
    member: int
    role: str
    digest: str
    reward: float
    solved: bool
    actions: Sequence[str] = field(repr=False)
    sequences: Sequence[Mapping[str, Any]] = field(repr=False)  # those of TokenSequence.written

    @classmethod
    def of(cls, rollout: Rollout, sequences: Sequence[TokenSequence]) -> Sample:
        return cls(
            rollout.env,
            rollout.task,
            rollout.member,
            rollout.role,
            rollout.digest,
            rollout.reward,
            rollout.solved,
            [turn.action for turn in rollout.turns],
            [sequence.written() for sequence in sequences] if rollout.turns else [],
        )

    def example(self) -> dict[str, Any]:
        """Return what a supervised stage keeps of it."""
        names = ("env", "task", "reward", "actions", "sequences")
        return {name: getattr(self, name) for name in names}


def whole_sequences(rollout: Rollout) -> list[TokenSequence]:
    """Return the sequences of an episode as its player saw them."""
    return merged_sequences(rollout.turns)


@define(eq=False)
class Sampler:
    """Plays the tasks of a stream for a ``stage``, and keeps them in the run folder.

    A run that is resumed plays and pays for none of them again: those of a ``model`` on this
    machine are written down wave by wave, so that waves stay as they were; those of a server as
    soon as they are played. ``play`` returns the episodes of a task, whose tokens ``meter`` counts;
    without one they cost nothing, and nothing is kept.
    """

    folder: RunFolder
    stage: str
    stream: TaskStream
    model: ModelPlan
    play: Play
    meter: Meter | None
    sequences: Callable[[Rollout], list[TokenSequence]] = whole_sequences
    _known: dict[int, list[Sample]] = field(factory=dict, init=False)

    @property
    def file(self) -> str:
        """The name of the file, of JSON lines: one for each task."""
        return f"episodes-{self.stage}.jsonl"

    def __attrs_post_init__(self) -> None:
        if (self.folder.path / self.file).exists():
            records = [record for record in self.folder.read(self.file) if record]
            self.folder.rewrite(self.file, records)  # without a line that a crash cut off
            for record in records:
                self._known[record["task"]] = [Sample(**one) for one in record["episodes"]]

    def wave(self, wanted: int, missing: int) -> int:
        """Return how many tasks to play side by side, of those that have one episode each."""
        if self.model.service == LOCAL:
            return min(WAVE, wanted)
        return max(min(WAVE, wanted), min(LARGE_WAVE, missing))

    async def take(self, count: int) -> list[list[Sample]]:
        """Return the episodes of the next ``count`` tasks, in the order of the tasks."""
        tasks = self.stream.take(count)
        new = [task for task in tasks if task.number not in self._known]
        await all_of(self._play(task) for task in new)
        if self.model.service == LOCAL:
            self._keep([task.number for task in new])
        return [self._known[task.number] for task in tasks]

    async def _play(self, task: Task) -> None:
        rollouts = await self.play(task)
        self._known[task.number] = [Sample.of(one, self.sequences(one)) for one in rollouts]
        if self.model.service != LOCAL:
            self._keep([task.number])

    def _keep(self, numbers: Sequence[int]) -> None:
        """Write down what tasks took, and then the tasks: after a crash in between they are played
        and paid for again, and both are counted."""
        if self.meter is None:
            return
        self.meter.write()
        records = (
            {
                "task": number,
                "episodes": [asdict(one, recurse=False) for one in self._known[number]],
            }
            for number in numbers
        )
        self.folder.append(self.file, records)


def model_player(
    client: SamplingClient,
    rollouts: RolloutsPlan,
    context: int | None,
    meter: Meter,
    top_p: float = 1.0,
    top_k: int = -1,
) -> Play:
    """Return what plays tasks with a model; its tokens are charged to what comes before the first
    step."""
    sampling = SamplingPlan(rollouts.max_tokens, rollouts.temperature, top_p, top_k, None, None)
    player = Player(client, sampling, context, DEFAULT_FAILURE, meter.running[PROBES])
    return partial(play_task, player)


async def collect(
    sampler: Sampler,
    wanted: int,
    most: int,
    chosen: Callable[[Sequence[Sample]], Sequence[Sample]],
    on_progress: Callable[[int, int], None],
) -> tuple[list[Sample], int]:
    """Play tasks until ``wanted`` episodes are ``chosen`` among those of each, or ``most`` are
    played; return the chosen ones in the order of their tasks, and how many were played."""
    good, played = list[Sample](), 0
    while len(good) < wanted and played < most:
        for group in await sampler.take(sampler.wave(wanted, wanted - len(good))):
            played += len(group)
            good += chosen(group)
        on_progress(min(len(good), wanted), wanted)
    return good[:wanted], played
