"""Episodes of rollouts that own their loop and ask for each reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from attrs import define, evolve, field

from rlc.chat import Action, EnvError, Observation, reply_message, whole_conversation
from rlc.data import TaskFacts
from rlc.envs.base import PolicyClient, PolicyReply, PolicyRequest
from rlc.envs.workers.threads import EventLoopThread

R = TypeVar("R")


@define(eq=False)
class CallbackEpisode(Generic[R]):
    """An :class:`rlc.envs.base.AsyncEpisode`, which begins with :meth:`begin`, of a rollout that
    owns its loop, and its :class:`rlc.envs.base.PolicyClient`: each call of :meth:`reply` is the
    next observation. Calls at the same time are answered one after the other. ``rollout`` runs in
    ``loop``; ``finish`` makes the last observation of its result, in the loop of the runtime.
    ``left`` is called when the episode is closed, perhaps twice."""

    name: str
    loop: EventLoopThread
    rollout: Callable[[PolicyClient], Coroutine[Any, Any, R]]
    finish: Callable[[R], Awaitable[Observation]]
    about: TaskFacts | None = None
    left: Callable[[], None] = lambda: None
    first: Observation = field(init=False)
    _task: asyncio.Task[R] | None = field(default=None, init=False)
    # Requests, each with what awaits its reply, and None when the rollout ends.
    _requests: asyncio.Queue[tuple[Observation, asyncio.Future[PolicyReply]] | None] = field(
        factory=asyncio.Queue, init=False
    )
    _answer: asyncio.Future[PolicyReply] = field(init=False)  # which the last request awaits
    _turns: int = field(default=0, init=False)

    async def begin(self) -> None:
        """Play up to the first request. Raise EnvError if there is none."""
        seen = await self.loop.call(self._begin())
        if seen is None:
            raise EnvError(f"`{self.name}` ended an episode without asking for a reply")
        self.first = evolve(seen, about=self.about)

    async def play(self, action: Action) -> Observation:
        assert self._task is not None, "an episode begins before it is played"
        seen = await self.loop.call(self._go_on(self._task, action))
        return await self.finish(self._task.result()) if seen is None else seen

    async def reply(self, request: PolicyRequest) -> PolicyReply:
        answer: asyncio.Future[PolicyReply] = asyncio.get_running_loop().create_future()
        seen = whole_conversation(request.messages, request.tools)
        self._requests.put_nowait((seen, answer))
        return await answer

    async def close(self) -> None:
        self.left()
        if self._task is not None:
            await self.loop.call(self._stop(self._task))

    async def _begin(self) -> Observation | None:
        self._task = asyncio.create_task(self._guarded())
        self._task.add_done_callback(lambda _: self._requests.put_nowait(None))
        return await self._next(self._task)

    async def _go_on(self, task: asyncio.Task[R], action: Action) -> Observation | None:
        turn, self._turns = self._turns, self._turns + 1
        if not self._answer.done():  # else nobody waits for it any more
            message = reply_message(action, turn)
            sampled = action.tokens, action.logprobs, action.cut_off, action.prompt
            self._answer.set_result(PolicyReply(message, turn, *sampled))
        return await self._next(task)

    async def _next(self, task: asyncio.Task[R]) -> Observation | None:
        """Return the next request that is awaited; None at the end. Raise the rollout's errors."""
        while (request := await self._requests.get()) is not None and not task.done():
            seen, self._answer = request
            if not self._answer.done():
                return seen
        task.result()
        return None

    async def _guarded(self) -> R:
        try:
            return await self.rollout(self)
        except SystemExit as error:  # it would end the loop
            raise EnvError(f"`{self.name}` raised SystemExit") from error

    async def _stop(self, task: asyncio.Task[R]) -> None:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # has been raised where it mattered


async def begin_alike(name: str, episodes: Sequence[CallbackEpisode[Any]]) -> None:
    """Begin all episodes of a group. Raise EnvError if they begin with different conversations;
    then, or if this is cancelled, all of them are closed."""
    try:
        await asyncio.gather(*(episode.begin() for episode in episodes))
        if any(one.first.messages != episodes[0].first.messages for one in episodes):
            raise EnvError(
                f"`{name}` begins the episodes of one task with different prompts, so there is no "
                "group to compare"
            )
    except BaseException:
        await asyncio.gather(*(one.close() for one in episodes), return_exceptions=True)
        raise
