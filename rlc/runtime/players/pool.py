"""Players as the process of the run sees them: what each plays, and what becomes of a dead one's.

A task goes to the player that plays fewest episodes. If a player dies, its tasks are played again
by others, with the same seeds; what it had used until a second before is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen

from rlc.envs import Responder, Responders
from rlc.runtime.concurrency import cancel_all, mark_seen
from rlc.runtime.players.messages import (
    AllWait,
    AnswerToPlayer,
    CancelTask,
    ClosedSetup,
    CloseSetup,
    DropClient,
    FirstMessage,
    ForgetQuestion,
    OpenClient,
    PlayedTask,
    PlayerNote,
    PlayerState,
    PlayTask,
    Question,
    StageSetup,
)
from rlc.runtime.players.starting import CLOSE_SECONDS, PlayerStarter, RunningPlayer
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts.groups import play_task
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.service_guard import unguarded, unlimited
from rlc.service import SamplingClient, calls_of

TRIES = 3  # of a task: one whose players die each time has probably killed them
_MEMORY = "signal 9 is often the machine's, for lack of memory: fewer players, or smaller steps"
_SERVICE, _LATE = "service/concurrency", "time/players_late"


class _GoneError(Exception):
    """A player has died; how."""


@define(eq=False)
class PendingTask:
    """A task at a player; ``known`` of its usage is counted already."""

    future: asyncio.Future[PlayedTask]
    usage: Usage
    known: Usage = field(factory=Usage)

    def count(self, usage: Usage) -> None:
        self.usage.add(usage, self.known)
        self.known = evolve(usage)


@frozen(eq=False)
class StagePlayers:
    """The players of a stage, or of an evaluation: the first ``count`` of a pool. ``setup`` is what
    player ``number`` is sent; ``here`` are the environments that the process of the run plays."""

    pool: PlayerPool
    number: int
    count: int
    setup: Callable[[int], StageSetup]
    responders: Responders
    here: frozenset[str]

    async def play(self, player: Player, task: Task) -> list[Rollout]:
        """Return the rollouts of a task, as :func:`rlc.runtime.rollouts.groups.play_task` does, and
        add what they use to the usage of ``player``."""
        if task.env.plan.name in self.here:
            return await play_task(player, task)
        return await self.pool.play(self, player, task)

    async def close(self) -> None:
        await self.pool.close_setup(self.number)


@define(eq=False)
class PlayerPool:
    """Players of one kind, each started with its first task."""

    starter: PlayerStarter
    greeting: FirstMessage
    note: Callable[[str], None]
    late: list[float] = field(factory=list, init=False)  # seconds, since the last metrics
    setups: dict[int, StagePlayers] = field(factory=dict, init=False)
    pasts: dict[int, Mapping[int, Responder]] = field(factory=dict, init=False)  # by client
    clients: weakref.WeakValueDictionary[int, Any] = field(
        factory=weakref.WeakValueDictionary, init=False
    )
    _numbers: weakref.WeakKeyDictionary[Any, int] = field(
        factory=weakref.WeakKeyDictionary, init=False
    )
    _next: Any = field(factory=lambda: itertools.count(1), init=False)
    _slots: list[PlayerSlot] = field(factory=list, init=False)

    @property
    def count(self) -> int:
        return len(self._slots)

    def grow(self, count: int) -> None:
        """Have at least so many players."""
        self._slots += [PlayerSlot(self, number) for number in range(self.count, count)]

    @property
    def links(self) -> list[PlayerLink]:
        return [slot.link for slot in self._slots if slot.link is not None]

    async def play(self, stage: StagePlayers, player: Player, task: Task) -> list[Rollout]:
        """Play a task. Raise what playing it raises, and RunError if players die over it."""
        ends = list[str]()
        while len(ends) < TRIES:
            slot = min(self._slots[: stage.count], key=lambda one: one.episodes)
            slot.episodes += task.size
            try:
                link = await slot.opened()
                return await link.play(stage, player, task)
            except _GoneError as gone:
                ends.append(str(gone))
            finally:
                slot.episodes -= task.size
        raise RunError(
            f"players died {TRIES} times while they played task {task.number} of "
            f"`{task.env.plan.name}`, and others: the last by {ends[-1]}",
            _MEMORY if "signal 9" in ends[-1] else "the code of an environment may have ended them",
        )

    def number_of(self, client: SamplingClient) -> int:
        """Return the number by which players know a sampling client."""
        client = unlimited(client)
        if (number := self._numbers.get(client)) is None:
            number = self._numbers[client] = next(self._next)
            self.clients[number] = client
            loop = asyncio.get_running_loop()
            weakref.finalize(client, _tell, loop, self._dropped, number).atexit = False
        return number

    def _dropped(self, number: int) -> None:
        self.pasts.pop(number, None)
        for link in self.links:
            if number in link.clients:
                link.clients.discard(number)
                link.send(DropClient(number))

    async def close_setup(self, number: int) -> None:
        """Close the environments of a stage at all players."""
        self.setups.pop(number, None)
        await asyncio.gather(*(link.close_setup(number) for link in self.links))

    async def close(self) -> None:
        """End the players."""
        await asyncio.gather(*(slot.close() for slot in self._slots))
        await self.starter.close()

    def metrics(self) -> Mapping[str, float]:
        """Return the sums of what the limiters of all players say, since the last call."""
        found = Counter[str]()
        for link in self.links:
            found.update(link.take_metrics())
        late, self.late = self.late, []
        return {**found, **({_LATE: float(np.percentile(late, 99))} if late else {})}

    def owed(self) -> str:
        return next((link.owed for link in self.links if link.owed), "")


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[int], None], number: int) -> None:
    """Call something in a loop, from whichever thread, unless it is over."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, number)


@define(eq=False)
class PlayerSlot:
    """The place of one player, who may be replaced. ``episodes`` are those under way there."""

    pool: PlayerPool
    number: int
    episodes: int = 0
    link: PlayerLink | None = field(default=None, init=False)
    _opening: asyncio.Task[PlayerLink] | None = field(default=None, init=False)

    async def opened(self) -> PlayerLink:
        """Return the player, who is started if there is none. Raise RunError if that fails."""
        if self.link is not None:
            return self.link
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(mark_seen)
        return await asyncio.shield(self._opening)

    async def _open(self) -> PlayerLink:
        try:
            link = PlayerLink(self.pool, self.number, await self.pool.starter.start())
        finally:
            self._opening = None
        link.begin(self._ended)
        self.link = link
        return link

    def _ended(self) -> None:
        self.link = None

    async def close(self) -> None:
        if self._opening is not None:
            await cancel_all([self._opening])
        if self.link is not None:
            await self.link.close()


@define(eq=False)
class PlayerLink:
    """The messages to and from one player."""

    pool: PlayerPool
    number: int
    running: RunningPlayer
    clients: set[int] = field(factory=set, init=False)
    owed: str = field(default="", init=False)
    _setups: set[int] = field(factory=set, init=False)
    _tasks: dict[int, PendingTask] = field(factory=dict, init=False)
    _closing: dict[int, asyncio.Future[None]] = field(factory=dict, init=False)
    _answering: dict[int, asyncio.Task[None]] = field(factory=dict, init=False)
    _next: Any = field(factory=itertools.count, init=False)
    _metrics: Counter[str] = field(factory=Counter, init=False)
    _sent: int = field(default=0, init=False)
    _gone: bool = field(default=False, init=False)
    _held: bool = field(default=False, init=False)  # a wave of requests waits for the player
    _reading: asyncio.Task[None] | None = field(default=None, init=False)

    def begin(self, ended: Callable[[], None]) -> None:
        self.send(self.pool.greeting)
        self._reading = asyncio.create_task(self._read(ended))

    def send(self, message: Any) -> None:
        """Send a message, unless the player is gone."""
        if not self._gone:
            self.running.channel.send(message)
            self._sent += 1
            self._hold(self.pool.greeting.waits)

    def take_metrics(self) -> Mapping[str, float]:
        """Return what the limiter says; what it counts, since the last call."""
        found = Counter(self._metrics)
        self._metrics = Counter({_SERVICE: found[_SERVICE]} if _SERVICE in found else {})
        return found

    async def play(self, stage: StagePlayers, player: Player, task: Task) -> list[Rollout]:
        number, client = next(self._next), self.pool.number_of(player.client)
        if stage.number not in self._setups:
            self._setups.add(stage.number)
            self.send(stage.setup(self.number))
        if client not in self.clients:
            self.clients.add(client)
            shared = None
            if self.pool.greeting.server is not None:
                from rlc.service import share_sampler  # which has the SDK with it

                shared = share_sampler(unguarded(player.client))
            self.send(OpenClient(client, shared))
        if player.pasts:
            self.pool.pasts[client] = player.pasts
        name, identity = task.env.plan.name, (task.number, task.size, task.seed, task.order)
        more = task.row, player.staleness, tuple(player.pasts)
        pending = PendingTask(asyncio.get_running_loop().create_future(), player.usage)
        self._tasks[number] = pending
        try:
            self.send(PlayTask(number, stage.number, client, name, *identity, *more))
            played = await pending.future
        except asyncio.CancelledError:
            self.send(CancelTask(number))
            raise
        finally:
            self._tasks.pop(number, None)
        if played.error is not None:
            raise played.error
        player.asked.number += played.asked
        return played.rollouts

    async def close_setup(self, number: int) -> None:
        """Let the player close the environments of a stage, and wait for it."""
        if number in self._setups:
            self._setups.discard(number)
            self._closing[number] = closed = asyncio.get_running_loop().create_future()
            self.send(CloseSetup(number))
            with suppress(TimeoutError):  # one that hangs is ended with the run
                async with asyncio.timeout(CLOSE_SECONDS):
                    await closed
            self._closing.pop(number, None)

    async def close(self) -> None:
        """End the player."""
        if self._reading is not None:
            await cancel_all([self._reading])
        self._gone = True
        self._hold(False)
        await cancel_all(self._answering.values())
        await self.running.end()

    async def _read(self, ended: Callable[[], None]) -> None:
        try:
            while True:
                self._take(await self.running.channel.receive())
        except EOFError:
            ended()
        self._gone = True
        self._hold(False)
        await cancel_all(self._answering.values())
        lost = dict(self._tasks)
        self._tasks.clear()
        how = await self.running.end()
        for closed in self._closing.values():
            if not closed.done():
                closed.set_result(None)
        if lost:
            groups = "1 group" if len(lost) == 1 else f"{len(lost):,} groups"
            again = f"what it played is played again: {groups}"
            self.pool.note(f"player {self.number + 1} has died ({how}); {again}")
        for pending in lost.values():
            if not pending.future.done():
                pending.future.set_exception(_GoneError(how))

    def _take(self, message: Any) -> None:
        match message:
            case PlayedTask() if (pending := self._tasks.get(message.number)) is not None:
                pending.count(message.usage)
                if not pending.future.done():
                    pending.future.set_result(message)
            case Question():
                answering = asyncio.create_task(self._answer(message))
                self._answering[message.number] = answering
                answering.add_done_callback(partial(self._answered, message.number))
            case ForgetQuestion() if (asked := self._answering.get(message.number)) is not None:
                asked.cancel()
            case PlayerState():
                for number, usage in message.usages.items():
                    if number in self._tasks:
                        self._tasks[number].count(usage)
                self._metrics.pop(_SERVICE, None)
                self._metrics.update(message.metrics)
                self.owed = message.owed
                self.pool.late.extend(message.late)
            case PlayerNote():
                self.pool.note(message.text)
            case AllWait() if message.heard == self._sent:
                self._hold(False)
            case ClosedSetup() if (closed := self._closing.get(message.number)) is not None:
                if not closed.done():
                    closed.set_result(None)

    def _hold(self, held: bool) -> None:
        """Let a service that answers in waves wait for the requests of this player, or not."""
        if held != self._held:
            self._held = held
            calls_of(asyncio.get_running_loop()).add(False, 1 if held else -1)

    def _answered(self, number: int, _: Any) -> None:
        self._answering.pop(number, None)

    async def _answer(self, question: Question) -> None:
        try:
            answer = AnswerToPlayer(question.number, await self._found(question))
        except Exception as error:
            answer = AnswerToPlayer(question.number, None, error)
        self.send(answer)

    async def _found(self, question: Question) -> Any:
        args, stage = question.args, self.pool.setups.get(question.setup)
        if question.what in ("sample", "compute_logprobs"):
            number, *rest = args
            if (client := self.pool.clients.get(number)) is None:
                raise RunError("a player asks for weights that are not needed any more")
            if question.what == "compute_logprobs":
                return await client.compute_logprobs(*rest)
            return await client.sample(*rest, **question.given)
        if stage is None:
            raise RunError("a player asks for a stage that is over")
        if question.what == "past":
            client_number, every, request = args
            return await self.pool.pasts[client_number][every].reply(request)
        if question.what == "logprob":
            return await stage.responders.logprob(*args)
        asked, most, timeout, request = args
        return await stage.responders(asked, most, timeout).reply(request)
