"""A group of cookbook environments: what was played, and the rewards that compare it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from attrs import define, field

from rlc.envs.base import EnvError
from rlc.envs.chunks import model_input
from rlc.envs.cookbook_history import TokenAction, TokenObservation
from rlc.envs.cookbook_loop import LoopThread
from rlc.envs.deadlines import waiting

T = TypeVar("T")
Grade = tuple[float, Mapping[str, float]]


@define(eq=False)
class Group:
    """The environments that one builder made. Members are closed one by one; with the last of them
    the builder cleans up."""

    target: str
    builder: Any
    envs: list[Any]
    loop: LoopThread
    _transitions: dict[int, list[Any]] = field(factory=dict, init=False)
    _final: dict[int, Any] = field(factory=dict, init=False)
    _playing: set[int] = field(init=False)
    _open: set[int] = field(init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _deserted: asyncio.Event = field(factory=asyncio.Event, init=False)
    _grading: asyncio.Task[dict[int, Grade]] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._playing = set(range(len(self.envs)))
        self._open = set(self._playing)

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
        """What the comparison adds to a finished member, once no other is still playing. Members
        that failed or were cut off are not compared."""
        if not self.compares:
            return 0.0, {}
        self._leave(member)
        with waiting():
            await self._over.wait()
        if self._grading is None:
            self._grading = asyncio.create_task(self._grades())
        return (await asyncio.shield(self._grading))[member]

    async def close(self, member: int) -> None:
        """A member is done with, however it ended. Safe to call twice."""
        self._leave(member)
        if member not in self._final:
            self._deserted.set()
        if member not in self._open:
            return
        self._open.discard(member)
        if self._open:
            return
        if self._grading is not None:
            self._grading.cancel()
        await self.loop.call(self.builder.cleanup())

    def _leave(self, member: int) -> None:
        self._playing.discard(member)
        if not self._playing:
            self._over.set()

    async def _grades(self) -> dict[int, Grade]:
        from tinker_cookbook.rl.types import Trajectory

        members = sorted(self._final)
        trajectories = [Trajectory(self._transitions[m], self._final[m]) for m in members]
        rewards = await self.loop.call(
            self.builder.compute_group_rewards(trajectories, [self.envs[m] for m in members])
        )
        if len(rewards) != len(members):
            raise EnvError(
                f"`compute_group_rewards` of `{self.target}` gave {len(rewards)} rewards for "
                f"{len(members)} episodes"
            )
        return {
            member: (float(reward), metrics)
            for member, (reward, metrics) in zip(members, rewards, strict=True)
        }
