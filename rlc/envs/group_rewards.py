"""Rewards that compare the members of a group: given once none of them is still playing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from attrs import define, field

from rlc.envs.base import EnvError
from rlc.envs.deadlines import waiting

G = TypeVar("G")


def require_whole(target: str, members: Sequence[int], size: int) -> None:
    """Raises EnvError where only some of a group are to be played that is compared."""
    if len(members) < size:
        raise EnvError(
            f"a group of `{target}` is rewarded by comparing its episodes, so that none can be "
            "played again by itself"
        )


@define(eq=False)
class GroupRewards(Generic[G]):
    """One group. ``compare`` gives one grade for each of the members that it is asked for, in
    their order; members that failed or were cut off are not among them."""

    target: str
    size: int
    compare: Callable[[list[int]], Awaitable[Sequence[G]]]
    _playing: set[int] = field(init=False)
    _finished: set[int] = field(factory=set, init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _grading: asyncio.Task[dict[int, G]] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._playing = set(range(self.size))

    async def finish(self, member: int) -> G:
        """The grade of a member that came to the end of its episode. Raises EnvError where the
        comparison gives another number of grades."""
        self._finished.add(member)
        self.leave(member)
        with waiting():
            await self._over.wait()
        if self._grading is None:
            self._grading = asyncio.create_task(self._grades())
        return (await asyncio.shield(self._grading))[member]

    def leave(self, member: int) -> None:
        """A member plays no more, however it ended. Safe to call twice."""
        self._playing.discard(member)
        if not self._playing:
            self._over.set()

    def close(self) -> None:
        """Nobody waits for grades any more."""
        if self._grading is not None:
            self._grading.cancel()

    async def _grades(self) -> dict[int, G]:
        members = sorted(self._finished)
        grades = await self.compare(members)
        if len(grades) != len(members):
            raise EnvError(
                f"`{self.target}` gave {len(grades)} rewards for a group of {len(members)} episodes"
            )
        return dict(zip(members, grades, strict=True))
