"""A group of cookbook environments: what was played, and the rewards that compare it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from attrs import define, field

from rlc.envs.base import EnvError
from rlc.envs.chunks import model_input
from rlc.envs.cookbook.event_loop_thread import EventLoopThread
from rlc.envs.cookbook.history import TokenAction, TokenObservation
from rlc.envs.group_rewards import GroupRewards

T = TypeVar("T")
Grade = tuple[float, Mapping[str, float]]


@define(eq=False)
class Group:
    """The environments that one builder made. Members are closed one by one; with the last of them
    the builder cleans up."""

    target: str
    builder: Any
    envs: list[Any]
    loop: EventLoopThread
    _transitions: dict[int, list[Any]] = field(factory=dict, init=False)
    _final: dict[int, Any] = field(factory=dict, init=False)
    _open: set[int] = field(init=False)
    _deserted: asyncio.Event = field(factory=asyncio.Event, init=False)
    _group_rewards: GroupRewards[Grade] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open = set(range(len(self.envs)))
        self._group_rewards = GroupRewards(self.target, len(self.envs), self._grades)

    @property
    def compares(self) -> bool:
        """Whether there are rewards of the group: whether the builder has a way of its own."""
        from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
        from tinker_cookbook.rl.types import EnvGroupBuilder

        own = getattr(type(self.builder), "compute_group_rewards", None)
        return own not in (
            None,
            EnvGroupBuilder.compute_group_rewards,
            ProblemGroupBuilder.compute_group_rewards,
        )

    @property
    def tags(self) -> list[str]:
        """The builder's `logging_tags`."""
        return [str(tag) for tag in self.builder.logging_tags()]

    def played(self, member: int, seen: TokenObservation, action: TokenAction, result: Any) -> None:
        """Write down one step, as the cookbook does."""
        from tinker_cookbook.completers import TokensWithLogprobs
        from tinker_cookbook.rl.types import Transition

        reason = "stop" if action.finished else "length"
        transition = Transition(
            ob=model_input(seen.tokens, seen.chunks),
            ac=TokensWithLogprobs(list(action.tokens), None, reason),
            reward=result.reward,
            episode_done=result.episode_done,
            metrics=result.metrics,
            logs=result.logs,
        )
        self._transitions.setdefault(member, []).append(transition)
        if result.episode_done:
            self._final[member] = result.next_observation

    async def together(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call gives that may wait for other members' moves. Raises EnvError once one of
        them has left before the end of its episode: its moves would be waited for in vain."""
        move = asyncio.ensure_future(call)
        alone = asyncio.ensure_future(self._deserted.wait())
        try:
            await asyncio.wait({move, alone}, return_when=asyncio.FIRST_COMPLETED)
            if move.done():
                return move.result()
        finally:
            alone.cancel()
            move.cancel()
        raise EnvError(f"another member of the group of `{self.target}` left the game")

    async def graded(self, member: int) -> Grade:
        """What the comparison adds to a finished member, once no other is still playing."""
        return await self._group_rewards.finish(member) if self.compares else (0.0, {})

    async def close(self, member: int) -> None:
        """A member is done with, however it ended. Safe to call twice."""
        self._group_rewards.leave(member)
        if member not in self._final:
            self._deserted.set()
        if member not in self._open:
            return
        self._open.discard(member)
        if self._open:
            return
        self._group_rewards.close()
        await self.loop.call(self.builder.cleanup())

    async def _grades(self, members: list[int]) -> list[Grade]:
        from tinker_cookbook.rl.types import Trajectory

        trajectories = [Trajectory(self._transitions[m], self._final[m]) for m in members]
        rewards = await self.loop.call(
            self.builder.compute_group_rewards(trajectories, [self.envs[m] for m in members])
        )
        return [(float(reward), metrics) for reward, metrics in rewards]
