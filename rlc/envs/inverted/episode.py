"""An episode of an environment that owns its loop, played turn by turn.

Its rollout is a task that asks for replies: each time it does, that is the next observation, and
the runtime's next action is the reply it awaits. It runs in an event loop of its own, where code
that blocks delays other episodes of its source, but nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from rlc.data.about import About
from rlc.envs.base import Action, EnvError, Observation
from rlc.envs.inverted.conversations import Plain, asked, spoken
from rlc.envs.workers.event_loop_thread import EventLoopThread

R = TypeVar("R")


@frozen
class Reply:
    """A reply of the policy: a message in OpenAI's form. ``cut_off`` as of an Action."""

    message: Plain
    cut_off: bool


# What a rollout calls, in its own loop, to get a reply to a conversation with some tools.
Ask = Callable[
    [Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Coroutine[Any, Any, Reply]
]


@frozen
class _Over(Generic[R]):
    result: R


@define(eq=False)
class InvertedEpisode(Generic[R]):
    """See :class:`rlc.envs.base.AsyncEpisode`. :meth:`begin` comes first.

    ``rollout`` plays one episode with what it is given to ask for replies, in ``loop``; ``finish``
    makes the last observation of what it returns, in the loop of the runtime. ``left`` is called
    when it is closed, perhaps twice. ``name`` is for messages. Conversations that are asked for at
    the same time are answered one after the other.
    """

    name: str
    loop: EventLoopThread
    rollout: Callable[[Ask], Coroutine[Any, Any, R]]
    finish: Callable[[R], Awaitable[Observation]]
    about: About | None = None
    left: Callable[[], None] = lambda: None
    first: Observation = field(init=False)
    _task: asyncio.Task[R] | None = field(default=None, init=False)
    _waiting: deque[tuple[Observation, asyncio.Future[Reply]]] = field(factory=deque, init=False)
    _wanted: asyncio.Event = field(factory=asyncio.Event, init=False)
    _turns: int = field(default=0, init=False)

    async def begin(self) -> None:
        """Play up to the first conversation. Raise EnvError if there is none, or what the
        environment raises."""
        seen = await self.loop.call(self._until_asked())
        if isinstance(seen, _Over):
            raise EnvError(f"`{self.name}` ended an episode without asking for a reply")
        self.first = Observation(seen.text, None, messages=seen.messages, about=self.about)

    async def play(self, action: Action) -> Observation:
        """Reply, and play on to the next conversation or to the end."""
        seen = await self.loop.call(self._until_asked(action))
        return await self.finish(seen.result) if isinstance(seen, _Over) else seen

    async def close(self) -> None:
        self.left()
        if self._task is not None:
            await self.loop.call(self._stop(self._task))

    async def _until_asked(self, action: Action | None = None) -> Observation | _Over[R]:
        if self._task is None:
            self._task = asyncio.create_task(self._guarded())
        elif action is not None:
            _, answer = self._waiting.popleft()
            message = spoken(action, self._turns)
            self._turns += 1
            if not answer.done():  # else nobody waits for it any more
                answer.set_result(Reply(message, action.cut_off))
        while not self._task.done():
            while self._waiting and self._waiting[0][1].done():
                self._waiting.popleft()
            if self._waiting:
                return self._waiting[0][0]
            self._wanted.clear()
            wanted = asyncio.ensure_future(self._wanted.wait())
            try:
                await asyncio.wait({self._task, wanted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                wanted.cancel()
        return _Over(self._task.result())

    async def _guarded(self) -> R:
        try:
            return await self.rollout(self._ask)
        except SystemExit as error:  # it would end the loop
            raise EnvError(f"`{self.name}` raised SystemExit") from error

    async def _ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked(messages, tools), answer))
        self._wanted.set()
        return await answer

    async def _stop(self, task: asyncio.Task[R]) -> None:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # has been raised where it mattered


async def begin_alike(name: str, episodes: Sequence[InvertedEpisode[Any]]) -> None:
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
