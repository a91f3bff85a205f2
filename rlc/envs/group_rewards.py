"""Rewards that compare the members of a group, computed when none of them is still playing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from attrs import define, field

from rlc.chat import EnvError
from rlc.envs.deadlines import waiting

S = TypeVar("S")
R = TypeVar("R")


def require_whole(target: str, members: Sequence[int], size: int) -> None:
    """Raise EnvError if only some members are to be played of a group that is compared."""
    if len(members) < size:
        raise EnvError(
            f"a group of `{target}` is rewarded by comparing its episodes, so that none can be "
            "played again by itself"
        )


@define(eq=False)
class GroupRewards(Generic[S, R]):
    """The rewards of one group. ``compare`` is called with the ends of its members, in their order,
    without those that failed or were cut off, and returns a reward for each."""

    target: str
    size: int
    compare: Callable[[list[S]], Awaitable[Sequence[R]]]
    _playing: set[int] = field(init=False)
    _open: set[int] = field(init=False)
    _ends: dict[int, S] = field(factory=dict, init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _computing: asyncio.Task[dict[int, R]] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._playing, self._open = set(range(self.size)), set(range(self.size))

    async def finish(self, member: int, end: S) -> R:
        """Return the reward of a member at its end, once no other is playing."""
        self._ends[member] = end
        self._leave(member)
        with waiting():
            await self._over.wait()
        if self._computing is None:
            self._computing = asyncio.create_task(self._rewards())
        return (await asyncio.shield(self._computing))[member]

    def close(self, member: int) -> bool:
        """Close a member; return whether that closed the group. Safe to call twice."""
        self._leave(member)
        if self._open != {member}:
            self._open.discard(member)
            return False
        self._open.clear()
        if self._computing is not None:
            self._computing.cancel()
        return True

    def _leave(self, member: int) -> None:
        self._playing.discard(member)
        if not self._playing:
            self._over.set()

    async def _rewards(self) -> dict[int, R]:
        members = sorted(self._ends)
        rewards = await self.compare([self._ends[member] for member in members])
        if len(rewards) != len(members):
            raise EnvError(
                f"`{self.target}` gave {len(rewards)} rewards for a group of {len(members)} "
                "episodes"
            )
        return dict(zip(members, rewards, strict=True))
