"""Games of the cookbook that the members of a group play with each other."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from attrs import define, field

from rlc.envs.base import Action, AsyncEpisode, Observation
from rlc.envs.cookbook.group import Group
from rlc.envs.cookbook.history import TokenObservation


class _Source(Protocol):
    """What of a source an episode needs."""

    async def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any: ...

    def first(self, start: Any) -> TokenObservation: ...

    def episode(self, group: Group, member: int, first: TokenObservation) -> AsyncEpisode: ...


@define(eq=False)
class GameEpisode:
    """What one member sees and does. See :class:`rlc.envs.base.JoiningEpisode`."""

    _source: _Source
    _group: Group
    _member: int
    _episode: AsyncEpisode | None = field(default=None, init=False)

    @property
    def first(self) -> Observation:
        return self._joined.first

    @property
    def _joined(self) -> AsyncEpisode:
        assert self._episode is not None, "this member has not joined the game yet"
        return self._episode

    async def join(self) -> Observation:
        env = self._group.envs[self._member]
        start = await self._group.together(self._source.run(env.initial_observation()))
        self._episode = self._source.episode(self._group, self._member, self._source.first(start))
        return self._episode.first

    async def play(self, action: Action) -> Observation:
        return await self._group.together(self._joined.play(action))

    async def close(self) -> None:
        await self._group.close(self._member)
