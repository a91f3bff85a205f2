"""What a run and its players tell each other: pickled records, each after its length.

A player is sent what a stage's episodes are made of once, then tasks by number. It sends back the
rollouts of each, as the process of the run would have played them. What only that process can
answer, judges and services without a client for others, a player asks it for.
"""

from __future__ import annotations

import asyncio
import copyreg
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from rlc.plan import (
    DeadlinesPlan,
    EnvPlan,
    FailurePlan,
    SamplingPlan,
    TeacherPlan,
)
from rlc.runtime.records import Rollout, Usage

if TYPE_CHECKING:
    from rlc.service import SharedSampler


@frozen
class FirstMessage:
    """The first message to a player. ``server`` is None if it samples through the process of the
    run. ``waits``: it has to say when all that it plays waits for answers."""

    server: str | None
    called: str
    waits: bool


@frozen
class ReplyLimit:
    """The part of a player in the replies that are sampled at once: as of
    :class:`rlc.runtime.service_guard.AdaptiveConcurrency`."""

    cap: int
    adapts: bool
    level: float
    known: float


@frozen(eq=False)
class StageSetup:
    """What the episodes of a stage, or of an evaluation, are made of. ``limit`` is the service's,
    ``own`` the stage's own limit besides."""

    number: int
    recipe: str
    envs: tuple[EnvPlan, ...]
    renderer: str
    tokenizer: bytes = field(repr=False)  # pickled
    teachers: tuple[TeacherPlan, ...]
    sampling: SamplingPlan
    context: int | None
    on_error: FailurePlan
    deadlines: DeadlinesPlan
    limit: ReplyLimit | None
    own: int | None


@frozen
class OpenClient:
    """From now on ``number`` is a sampling client: of the service, or, without ``shared``, of the
    process of the run."""

    number: int
    shared: SharedSampler | None


@frozen
class DropClient:
    number: int


@frozen
class PlayTask:
    """Play a task; see :class:`rlc.runtime.rollouts.tasks.Task`. ``pasts``: the opponents that the
    policy was, by their intervals."""

    number: int
    setup: int
    client: int
    env: str
    task: int
    size: int
    seed: int
    order: int
    row: int | None
    staleness: int
    pasts: tuple[int, ...]


@frozen
class CancelTask:
    number: int


@frozen
class CloseSetup:
    number: int


@frozen(eq=False)
class AnswerToPlayer:
    """The answer to a question of the player, or the error in its place."""

    number: int
    value: Any
    error: Exception | None = None


@frozen(eq=False)
class PlayedTask:
    """The rollouts of a task with all that they used, or the error that ended it."""

    number: int
    rollouts: list[Rollout]
    usage: Usage
    asked: int
    error: Exception | None = None


@frozen(eq=False)
class Question:
    """A question to the process of the run: ``what`` with its arguments."""

    number: int
    setup: int
    what: str
    args: tuple[Any, ...]
    given: Mapping[str, Any] = field(factory=dict)


@frozen
class ForgetQuestion:
    number: int


@frozen
class PlayerState:
    """Sent every second: what tasks under way have used, the state of the limiter, what the service
    owes, and by how many seconds the event loop was late each time that it was looked at."""

    usages: Mapping[int, Usage]
    metrics: Mapping[str, float]
    owed: str
    late: Sequence[float]


@frozen
class PlayerNote:
    text: str


@frozen
class AllWait:
    """After so many messages everything that the player plays waits for answers."""

    heard: int


@frozen
class ClosedSetup:
    number: int


_LENGTH = 8  # bytes before a message


class Channel(Protocol):
    """Messages in order, in both directions."""

    def send(self, message: Any) -> None:
        """Send a message; it may wait for others."""

    async def receive(self) -> Any:
        """Return the next message. Raise EOFError once the other side is gone."""

    async def drain(self) -> None:
        """Wait until few messages wait to be sent."""


def _proxy(content: Mapping[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))


def packed(message: Any) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


@frozen(eq=False)
class StreamChannel:
    """A channel over a socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, message: Any) -> None:
        content = packed(message)
        if self.writer.is_closing():  # nobody hears it, which the next `receive` says
            return
        self.writer.writelines([len(content).to_bytes(_LENGTH, "big"), content])

    async def receive(self) -> Any:
        try:
            length = int.from_bytes(await self.reader.readexactly(_LENGTH), "big")
            return pickle.loads(await self.reader.readexactly(length))
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise EOFError from error

    async def drain(self) -> None:
        try:
            await self.writer.drain()
        except ConnectionError as error:
            raise EOFError from error

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):  # the other side is gone
            await self.writer.wait_closed()
