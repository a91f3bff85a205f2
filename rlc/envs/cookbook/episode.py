"""A member's part in a group of cookbook environments, which take prompts and replies as tokens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from rlc.chat import (
    NO_CHUNKS,
    Action,
    Chunks,
    ContractError,
    EnvError,
    Observation,
    model_input,
    readable_text,
    split_chunks,
)
from rlc.envs.base import JoiningEpisode
from rlc.envs.group_rewards import GroupRewards
from rlc.envs.workers.threads import EventLoopThread

Stop = list[int] | list[str] | None
Reward = tuple[float, Mapping[str, float]]  # with its metrics
_T = TypeVar("_T")


@frozen
class TokenObservation(Observation):
    """A whole prompt: ``tokens`` with the marks of ``chunks``, and what ends the reply."""

    tokens: tuple[int, ...] = ()
    chunks: Chunks = NO_CHUNKS
    stop: tuple[int, ...] | tuple[str, ...] = ()


@frozen
class TokenAction(Action):
    """A reply as it was sampled. ``finished``: it ended by itself, not at max_tokens."""

    tokens: tuple[int, ...] = ()
    finished: bool = True


class TokenHistory:
    """Passes prompts and replies on. Turns whose prompts extend the earlier ones are one datum."""

    def __init__(self, tokenizer: Any) -> None:
        self.stop: Stop = None
        self.chunks: Chunks = NO_CHUNKS
        self._tokenizer = tokenizer

    def observe(self, observation: Observation) -> list[int]:
        assert isinstance(observation, TokenObservation)
        self.stop = list(observation.stop) or None  # type: ignore[assignment]
        self.chunks = observation.chunks
        return list(observation.tokens)

    def reply(self, tokens: list[int]) -> TokenAction:
        text = self._tokenizer.decode(tokens)
        finished = any(
            text.endswith(end) if isinstance(end, str) else end in tokens[-1:]
            for end in (*(self.stop or ()), self._tokenizer.eos_token_id)
        )
        return TokenAction(text, tokens=tuple(tokens), finished=finished)


@define(eq=False)
class MemberGroup:
    """The environments of a builder, which cleans up when the last member is closed."""

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
        """Whether the builder overrides the method of group rewards."""
        from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
        from tinker_cookbook.rl.types import EnvGroupBuilder

        own = getattr(type(self.builder), "compute_group_rewards", None)
        return own not in (
            None,
            EnvGroupBuilder.compute_group_rewards,
            ProblemGroupBuilder.compute_group_rewards,
        )

    def first(self, start: Any) -> TokenObservation:
        """Return what `initial_observation` returned as an observation, or raise EnvError."""
        if not isinstance(start, tuple):
            raise EnvError(f"the first prompt of `{self.target}` is over its own limit of tokens")
        return self.prompt(*start)

    def prompt(self, prompt: Any, stop: Any, before: Sequence[int] = ()) -> TokenObservation:
        """Return a prompt as an observation; its text leaves out the tokens ``before``."""
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
        """Await a call that may wait for others' moves. Raise EnvError once one has left."""
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
        """Return what the comparison adds to a finished member, once no other is playing."""
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
        if not isinstance(action, TokenAction):
            raise EnvError("an environment of the cookbook takes tokens, not text")
        step, more = self._group.envs[self._member].step, dict[str, Any]()
        takes = inspect.signature(step).parameters
        if "extra" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):  # newer ones
            more["extra"] = {"stop_reason": "stop" if action.finished else "length"}
        result = await self._group.loop.call(step(list(action.tokens), **more))
        metrics = {str(name): value for name, value in (result.metrics or {}).items()}
        reward = float(result.reward)
        self._group.record(self._member, self._seen, action, result)
        if result.episode_done:
            added, of_group = await self._group.reward(self._member)
            tags = {f"tag/{tag}": 1.0 for tag in self._group.builder.logging_tags()}
            return Observation("", reward + added, True, {**metrics, **of_group, **tags})
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
