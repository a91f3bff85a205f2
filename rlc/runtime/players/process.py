"""A player: plays the tasks that it is sent, with environments and sampling clients of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import define, evolve, field, frozen

import rlc.service.engine  # noqa: F401 (before anything imports torch)
from rlc.chat import Chunks
from rlc.data import search_beside
from rlc.envs import ModelReply, ModelRequest, PlayableEnv, Responder
from rlc.errors import Error, first_line
from rlc.plan import Asked, ModelState
from rlc.runtime.concurrency import (
    EventLoopYield,
    cancel_all,
    in_thread,
    mark_seen,
    short_gc_pauses,
)
from rlc.runtime.players.messages import (
    AllWait,
    AnswerToPlayer,
    CancelTask,
    Channel,
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
    StreamChannel,
)
from rlc.runtime.records import RunError, Usage
from rlc.runtime.rollouts.groups import build_envs, play_task
from rlc.runtime.rollouts.player import Player, Replies, close_envs
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.service_guard import (
    AdaptiveConcurrency,
    ConcurrencyLimiter,
    LimitedSamplingClient,
    ServiceGuard,
    Watchdog,
    fixed_limiter,
)
from rlc.runtime.updates.scorers import teacher_views
from rlc.service import Patience, SamplingClient, SharedSamplers, calls_of, reported_to

STATE_SECONDS, _LOOKS = 1.0, 20  # at the clock, in this time
_QUIET_TURNS, _POLL = 20, 0.001  # as the engine looks for the end of what may bring more requests


@frozen(eq=False)
class OpenedSetup:
    setup: StageSetup
    envs: Mapping[str, PlayableEnv]
    limiter: ConcurrencyLimiter | None  # the stage's own

    def limited(self, client: SamplingClient) -> SamplingClient:
        return client if self.limiter is None else LimitedSamplingClient(client, self.limiter)


@define(eq=False)
class RunResponder:
    """A model that the process of the run asks."""

    ask: Callable[..., Any]  # with the model's name for that process
    what: str
    asked: tuple[Any, ...]

    async def reply(self, question: ModelRequest) -> ModelReply:
        reply: ModelReply = await self.ask(self.what, *self.asked, question)
        return reply


@frozen(eq=False)
class RunResponders:
    """See :class:`rlc.envs.responders.Responders`."""

    ask: Callable[..., Any]

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        return RunResponder(self.ask, "reply", (asked, most, timeout))

    async def logprob(
        self, model: ModelState, tokens: Sequence[int], chunks: Chunks, said: Sequence[int]
    ) -> float:
        found: float = await self.ask("logprob", model, [*tokens], chunks, [*said])
        return found


@frozen(eq=False)
class RunClient:
    """A sampling client of the process of the run."""

    ask: Callable[..., Any]
    number: int

    async def sample(self, *args: Any, **given: Any) -> Any:
        return await self.ask("sample", self.number, *args, given=given)

    async def compute_logprobs(self, prompt: Any) -> Any:
        return await self.ask("compute_logprobs", self.number, prompt)

    def get_tokenizer(self) -> Any:
        raise NotImplementedError  # a player's tokenizer comes with the setup


@define(eq=False)
class PlayerProcess:
    """Plays what comes over its channel until the other side is gone."""

    channel: Channel
    greeting: FirstMessage
    guard: ServiceGuard = field(init=False)
    _samplers: SharedSamplers | None = field(default=None, init=False)
    _setups: dict[int, asyncio.Task[OpenedSetup]] = field(factory=dict, init=False)
    _clients: dict[int, asyncio.Future[SamplingClient]] = field(factory=dict, init=False)
    _plays: dict[int, asyncio.Task[None]] = field(factory=dict, init=False)
    _others: set[asyncio.Future[Any]] = field(factory=set, init=False)
    _usages: dict[int, Usage] = field(factory=dict, init=False)
    _questions: dict[int, asyncio.Future[Any]] = field(factory=dict, init=False)
    _numbers: Any = field(factory=itertools.count, init=False)
    _loop_yield: EventLoopYield = field(factory=EventLoopYield, init=False)
    _heard: int = field(default=1, init=False)  # messages, the greeting too
    _quiet: int = field(default=0, init=False)
    _turning: bool = field(default=False, init=False)
    _changes: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        ping = None
        if self.greeting.server is not None:
            patience = Patience(self.greeting.called, pressed=lambda: self.guard.pressed())
            self._samplers = SharedSamplers(self.greeting.server, patience)
            ping = self._samplers.ping
        self.guard = ServiceGuard(None, Watchdog(self._note, ping), None)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()

        def report(text: str, is_pause: bool) -> None:
            loop.call_soon_threadsafe(self._note, text)
            if is_pause:
                loop.call_soon_threadsafe(self.guard.pressed)

        telling = asyncio.create_task(self._tell())
        try:
            with reported_to(report), short_gc_pauses():
                while True:
                    message = await self.channel.receive()
                    self._heard += 1
                    self._take(message)
                    self._stir()
        except EOFError:  # the run is over, or its process has died
            return
        finally:
            await cancel_all([telling, *self._plays.values(), *self._others])
            for opening in self._setups.values():
                await self._closed(opening)

    def _take(self, message: Any) -> None:
        match message:
            case StageSetup():
                self._limit(message)
                opening = asyncio.create_task(self._opened(message))
                opening.add_done_callback(mark_seen)
                self._setups[message.number] = opening
            case OpenClient():
                opening_client = asyncio.ensure_future(self._client(message))
                opening_client.add_done_callback(mark_seen)
                self._clients[message.number] = opening_client
            case PlayTask():
                self._plays[message.number] = asyncio.create_task(self._play(message))
            case AnswerToPlayer():
                future = self._questions.pop(message.number, None)
                if future is not None and not future.done():
                    if message.error is None:
                        future.set_result(message.value)
                    else:
                        future.set_exception(message.error)
            case CancelTask() if (play := self._plays.get(message.number)) is not None:
                play.cancel()
            case DropClient():
                self._clients.pop(message.number, None)
            case CloseSetup():
                closing = asyncio.create_task(self._close(message.number))
                self._others.add(closing)
                closing.add_done_callback(self._others.discard)

    def _limit(self, setup: StageSetup) -> None:
        self.guard.watchdog.limit(setup.deadlines)
        if (limit := setup.limit) is None:
            self.guard.limiter = None
        elif self.guard.limiter is None:
            level = AdaptiveConcurrency(limit.cap, limit.adapts, limit.level, limit.known)
            self.guard.limiter = ConcurrencyLimiter(level)
        else:
            self.guard.limiter.concurrency.cap = limit.cap

    async def _opened(self, setup: StageSetup) -> OpenedSetup:
        search_beside(setup.recipe)
        asking = RunResponders(partial(self._ask, setup.number))
        own = None if setup.own is None else fixed_limiter(setup.own)

        def build() -> OpenedSetup:
            tokenizer = pickle.loads(setup.tokenizer)
            views = partial(teacher_views, setup.teachers)
            made = build_envs(setup.envs, tokenizer, setup.renderer, asking, views)
            return OpenedSetup(setup, made, own)

        return await in_thread(build)

    async def _client(self, message: OpenClient) -> SamplingClient:
        if message.shared is None:  # its answers come in time, or the run ends there
            own: Any = RunClient(partial(self._ask, 0), message.number)
            limiter = self.guard.limiter
            return own if limiter is None else LimitedSamplingClient(own, limiter)
        assert self._samplers is not None
        return self.guard.guarded(await in_thread(self._samplers.open, message.shared))

    async def _play(self, message: PlayTask) -> None:
        number, usage, asked = message.number, Usage(), Replies()
        self._usages[number] = usage
        played = PlayedTask(number, [], usage, 0)
        try:
            opened = await asyncio.shield(self._setups[message.setup])
            client = await asyncio.shield(self._clients[message.client])
            setup = opened.setup
            ask = partial(self._ask, message.setup)
            player = Player(
                client=opened.limited(client),
                sampling=setup.sampling,
                context=setup.context,
                on_error=setup.on_error,
                usage=usage,
                staleness=message.staleness,
                pasts={
                    every: RunResponder(ask, "past", (message.client, every))
                    for every in message.pasts
                },
                asked=asked,
                loop_yield=self._loop_yield,
            )
            env = opened.envs[message.env]
            identity = message.task, message.size, message.seed, message.order, message.row
            rollouts = await play_task(player, Task(env, *identity))
            played = evolve(played, rollouts=rollouts, asked=asked.number)
        except Exception as error:
            played = evolve(played, error=_sendable(error))
        finally:
            self._plays.pop(number, None)
            self._usages.pop(number, None)
        try:
            self.channel.send(played)
        except Exception as error:  # an environment's facts may be anything
            played = PlayedTask(number, [], usage, 0, _sendable(error))
            self.channel.send(played)
        await self.channel.drain()

    async def _ask(
        self, setup: int, what: str, *args: Any, given: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the answer of the process of the run, or raise its error."""
        number = next(self._numbers)
        self._questions[number] = future = asyncio.get_running_loop().create_future()
        self.channel.send(Question(number, setup, what, args, given or {}))
        try:
            return await future
        except asyncio.CancelledError:
            if self._questions.pop(number, None) is not None:
                self.channel.send(ForgetQuestion(number))
            raise

    async def _close(self, number: int) -> None:
        if (opening := self._setups.pop(number, None)) is not None:
            await self._closed(opening)
        self.channel.send(ClosedSetup(number))

    async def _closed(self, opening: asyncio.Task[OpenedSetup]) -> None:
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await close_envs(opening.result().envs.values())

    async def _tell(self) -> None:
        """Tell every second what is under way."""
        clock = asyncio.get_running_loop().time
        while True:
            late = []
            for _ in range(_LOOKS):
                due = clock() + STATE_SECONDS / _LOOKS
                await asyncio.sleep(STATE_SECONDS / _LOOKS)
                late.append(clock() - due)
            if self._plays:
                limiter = self.guard.limiter
                metrics = {} if limiter is None else limiter.metrics()
                owed = self.guard.watchdog.owed() if self.guard.watchdog.pending else ""
                self.channel.send(PlayerState(dict(self._usages), metrics, owed, late))

    def _note(self, text: str) -> None:
        self.channel.send(PlayerNote(text))

    def _stir(self) -> None:
        """Say when everything waits for answers, which a service that answers in waves needs."""
        if self.greeting.waits:
            self._quiet = 0
            if not self._turning:
                self._turning = True
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        calls = calls_of(loop)
        if self._changes != calls.changes:
            self._quiet, self._changes = 0, calls.changes
        self._quiet += 1
        if self._quiet <= _QUIET_TURNS:
            loop.call_soon(self._turn)
        elif calls.ours or calls.environments:
            loop.call_later(_POLL, self._turn)
        else:
            self._turning = False
            self.channel.send(AllWait(self._heard))


def _sendable(error: Exception) -> Exception:
    """Return an error as another process can raise it."""
    if isinstance(error, Error):
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # one with arguments of its own
            return RunError(error.message, error.hint)
        return error
    failed = RunError(f"a player failed: {type(error).__name__}: {first_line(error)}")
    failed.add_note("".join(traceback.format_exception(error)))
    return failed


async def serve(channel: Channel) -> None:
    """Play until the process of the run is gone."""
    with suppress(EOFError):  # at once, if it is
        await PlayerProcess(channel, await channel.receive()).run()


def main(handle: int) -> None:
    """Run a player of this machine, whose channel is the socket ``handle``; the process ends."""

    async def play() -> None:
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=handle))
        await serve(StreamChannel(reader, writer))

    status = 0
    try:
        asyncio.run(play())
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(status)  # threads of environments may hang
