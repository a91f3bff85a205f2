"""Data sets of tinker-cookbook (0.5.8) as a source: ``cookbook("module:Builder")`` is any
`RLDatasetBuilder`, `RLDataset`, function that returns one of them, or class of environments, such
as a `ProblemEnv`, whose problems are rows.

Task *n* is the *n*-th group of the data set's batches; after the last group the next epoch begins.
`get_batch(i)` must be a pure function of *i*, so that a resumed run continues where it stopped. The
builder's fields that the recipe decides elsewhere may not be given: the name of the model, which
stands for the tokenizer of the run, that of the renderer, and the size of a group.

Environments take and give tokens, with images and sounds. What `compute_group_rewards` returns is
added to an episode's last reward; if it compares episodes, it waits for all of a group. Code that
blocks delays the other episodes of the source, but nothing else. Members that start from different
prompts, or wait for each other's moves, need ``self_play``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from rlc.catalog import (
    COOKBOOK_GROUP,
    COOKBOOK_MODEL,
    COOKBOOK_RENDERER,
    own_code,
)
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
from rlc.data import (
    DataRow,
    explained,
)
from rlc.envs.base import AsyncEpisode, JoiningEpisode, TaskKey
from rlc.envs.cookbook.sets import Batches, built, made_builder
from rlc.envs.group_rewards import GroupRewards, require_whole
from rlc.envs.workers.threads import EventLoopThread
from rlc.plan import elapsed

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
    """A reply in tokens. ``finished``: it ended by itself, not at max_tokens."""

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
        from tinker_cookbook.rl.types import Trajectory

        if not self.compares:
            return 0.0, {}
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
class SelfPlayEpisode(JoiningEpisode):
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


_OPENING = 60.0  # seconds within which all first observations must come


class CookbookSource:
    """The groups of one data set, ``count`` of them. See :class:`rlc.envs.base.AsyncSource`."""

    def __init__(
        self,
        builder: str,
        args: Mapping[str, Any],
        split: str,
        size: int,
        tokenizer: Any,
        renderer: str,
        self_play: bool = False,
        rows: Sequence[DataRow] | None = None,
    ) -> None:
        """With ``self_play`` the members of a group of ``size`` play with each other; ``rows`` are
        the problems of a class of environments. Raise EnvError for a builder that cannot be called,
        has no such data, or makes groups of another size."""
        self._target = builder
        self._self_play = self_play
        self._tokenizer = tokenizer
        self._loop = EventLoopThread()

        def values(model: str) -> dict[str, Any]:
            return {
                **dict.fromkeys(COOKBOOK_MODEL, model),
                **dict.fromkeys(COOKBOOK_RENDERER, renderer),
                **dict.fromkeys(COOKBOOK_GROUP, size),
            }

        try:
            code = own_code("cookbook", builder, args, rows is not None)
            made = made_builder(code, tokenizer, renderer, values, rows)
            self._batches = Batches(builder, self._loop.run(built(builder, made, split)))
            self.count = self._batches.count
            self._loop.run(self._require_size(size))
        except BaseException:
            self._loop.close()
            raise

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        builder = self._batches.group(task.number)
        envs = list(await self._loop.call(builder.make_envs()))
        group = MemberGroup(self._target, builder, envs, self._loop, self._tokenizer)
        try:
            return await self._episodes(group, task, members)
        except BaseException:
            for member in range(len(group.envs)):
                await group.close(member)
            raise

    async def close(self) -> None:
        self._loop.close()

    async def _episodes(
        self, group: MemberGroup, task: TaskKey, members: Sequence[int]
    ) -> list[AsyncEpisode]:
        if len(group.envs) < task.size:
            raise EnvError(_sizes(self._target, len(group.envs), task.size))
        if group.compares:
            require_whole(self._target, members, task.size)
        if self._self_play:
            if len(members) < task.size:
                raise EnvError(
                    f"the members of a group of `{self._target}` play with each other, so that "
                    "none can be played again by itself"
                )
            return [SelfPlayEpisode(group, member) for member in members]
        for member in set(range(len(group.envs))) - set(members):
            await group.close(member)

        async def all_starts() -> list[Any]:
            async with asyncio.timeout(_OPENING):
                return await asyncio.gather(
                    *(group.envs[member].initial_observation() for member in members)
                )

        try:
            firsts = [group.first(start) for start in await self._loop.call(all_starts())]
        except TimeoutError as error:
            raise EnvError(
                f"`{self._target}` gave no first observation in {elapsed(_OPENING)}: if its "
                "members wait for each other's moves, say `self_play = true`"
            ) from error
        if any(first.tokens != firsts[0].tokens for first in firsts):
            raise EnvError(
                f"the members of a group of `{self._target}` start from different prompts: if "
                "they play with each other, say `self_play = true`"
            )
        return [CookbookEpisode(first, group, m) for m, first in zip(members, firsts, strict=True)]

    async def _require_size(self, size: int) -> None:
        """Make and drop one group, before anything is paid for. Raise EnvError for another size."""
        builder = self._batches.group(0)
        try:
            found = len(await builder.make_envs())
        except Exception as error:
            what = f"`{self._target}` failed to make its environments: {explained(error)}"
            raise EnvError(what) from error
        finally:
            await builder.cleanup()
        if found != size:
            raise EnvError(_sizes(self._target, found, size))


def _sizes(target: str, found: int, size: int) -> str:
    return (
        f"`{target}` makes groups of {found}, and the recipe's have {size}: write "
        f"`groups(…, group_size = {found})`, or `samples = {found}` in an evaluation"
    )
