"""One member's part in a group of cookbook environments."""

from __future__ import annotations

import inspect
from typing import Any

from attrs import define, evolve, field

from rlc.chat import Action, EnvError, Observation
from rlc.envs.base import JoiningEpisode
from rlc.envs.cookbook.group import MemberGroup
from rlc.envs.cookbook.history import TokenAction, TokenObservation


@define(eq=False)
class CookbookEpisode:
    """An episode from its first prompt on. See :class:`rlc.envs.base.AsyncEpisode`."""

    first: TokenObservation
    _group: MemberGroup
    _member: int
    _seen: TokenObservation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self.first

    async def play(self, action: Action) -> Observation:
        """Take one step; the last one adds what the comparison of the group adds."""
        if not isinstance(action, TokenAction):
            raise EnvError("an environment of the cookbook takes tokens, not text")
        step = self._group.envs[self._member].step
        # Only newer environments take `extra`.
        takes = inspect.signature(step).parameters
        if "extra" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
            extra = {"stop_reason": "stop" if action.finished else "length"}
            result = await self._group.loop.call(step(list(action.tokens), extra=extra))
        else:
            result = await self._group.loop.call(step(list(action.tokens)))
        metrics = {str(name): value for name, value in (result.metrics or {}).items()}
        reward = float(result.reward)
        self._group.record(self._member, self._seen, action, result)
        if result.episode_done:
            more, of_group = await self._group.reward(self._member)
            tags = {f"tag/{tag}": 1.0 for tag in self._group.builder.logging_tags()}
            return Observation("", reward + more, True, {**metrics, **of_group, **tags})
        before = (*self._seen.tokens, *action.tokens)
        seen = self._group.prompt(result.next_observation, result.next_stop_condition, before)
        self._seen = evolve(seen, reward=reward, metrics=metrics)
        return self._seen

    async def close(self) -> None:
        await self._group.close(self._member)


@define(eq=False)
class GameEpisode(JoiningEpisode):
    """An episode of a game that the members of a group play with each other."""

    _group: MemberGroup
    _member: int
    _joined: CookbookEpisode | None = field(default=None, init=False)

    @property
    def first(self) -> Observation:
        assert self._joined is not None, "this member has not joined the game yet"
        return self._joined.first

    async def join(self) -> Observation:
        group, env = self._group, self._group.envs[self._member]
        start: Any = await group.together(group.loop.call(env.initial_observation()))
        self._joined = CookbookEpisode(group.first(start), group, self._member)
        return self._joined.first

    async def play(self, action: Action) -> Observation:
        assert self._joined is not None, "this member has not joined the game yet"
        return await self._group.together(self._joined.play(action))

    async def close(self) -> None:
        await self._group.close(self._member)
