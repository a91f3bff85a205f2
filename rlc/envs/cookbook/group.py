"""A group of cookbook environments: its prompts, what was played, the rewards that compare it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, field

from rlc.chat import ContractError, EnvError, model_input, readable_text, split_chunks
from rlc.envs.cookbook.history import TokenAction, TokenObservation
from rlc.envs.group_rewards import GroupRewards
from rlc.envs.workers.event_loop_thread import EventLoopThread

_T = TypeVar("_T")
Reward = tuple[float, Mapping[str, float]]  # with its metrics


@define(eq=False)
class MemberGroup:
    """The environments that one builder made. Members are closed one by one; when the last of them
    is closed, the builder cleans up."""

    target: str
    builder: Any
    envs: list[Any]
    loop: EventLoopThread
    tokenizer: Any
    _transitions: dict[int, list[Any]] = field(factory=dict, init=False)
    _final: dict[int, Any] = field(factory=dict, init=False)
    _deserted: asyncio.Event = field(factory=asyncio.Event, init=False)
    _rewards: GroupRewards[Any, Reward] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rewards = GroupRewards(self.target, len(self.envs), self._compare)

    @property
    def compares(self) -> bool:
        """Whether there are rewards of the group: whether the builder overrides their method."""
        from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
        from tinker_cookbook.rl.types import EnvGroupBuilder

        own = getattr(type(self.builder), "compute_group_rewards", None)
        return own not in (
            None,
            EnvGroupBuilder.compute_group_rewards,
            ProblemGroupBuilder.compute_group_rewards,
        )

    def first(self, start: Any) -> TokenObservation:
        """The observation of what `initial_observation` returned. Raise EnvError if it is no
        prompt."""
        if not isinstance(start, tuple):
            raise EnvError(f"the first prompt of `{self.target}` is over its own limit of tokens")
        return self.prompt(*start)

    def prompt(self, prompt: Any, stop: Any, before: Sequence[int] = ()) -> TokenObservation:
        """A prompt as an observation, whose text leaves out the tokens ``before``, if the prompt
        begins with them."""
        try:
            tokens, chunks = split_chunks(prompt)
        except (AttributeError, TypeError) as error:
            given = type(prompt).__name__
            raise ContractError(f"`{self.target}` gave a {given}, not a prompt") from error
        known = len(before) if tokens[: len(before)] == list(before) else 0
        text = readable_text(tokens[known:], chunks, self.tokenizer)
        return TokenObservation(text, tokens=tuple(tokens), chunks=chunks, stop=tuple(stop or ()))

    def record(self, member: int, seen: TokenObservation, action: TokenAction, result: Any) -> None:
        """Record one step as the cookbook does."""
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

    async def together(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a call that may wait for other members' moves. Raise EnvError once one of them has
        left before the end of its episode, since its moves will never come."""
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

    async def reward(self, member: int) -> Reward:
        """What the comparison adds to a finished member, once no other is still playing."""
        if not self.compares:
            return 0.0, {}
        from tinker_cookbook.rl.types import Trajectory

        played = Trajectory(self._transitions[member], self._final[member])
        return await self._rewards.finish(member, (played, self.envs[member]))

    async def close(self, member: int) -> None:
        """Close a member, however its episode ended. Safe to call twice."""
        if member not in self._final:
            self._deserted.set()
        if self._rewards.close(member):
            await self.loop.call(self.builder.cleanup())

    async def _compare(self, played: list[Any]) -> list[Reward]:
        trajectories, envs = map(list, zip(*played, strict=True))
        rewards = await self.loop.call(self.builder.compute_group_rewards(trajectories, envs))
        return [(float(reward), metrics) for reward, metrics in rewards]
