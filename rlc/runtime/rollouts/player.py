"""Playing groups of episodes against a sampling client."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field, frozen

from rlc.algo.rewards import reduce_rewards
from rlc.envs.base import (
    Action,
    AsyncEpisode,
    ContractError,
    EnvError,
    Observation,
    TaskKey,
    checked,
    joins,
)
from rlc.envs.build import PlayableEnv
from rlc.envs.chunks import Chunks, model_input
from rlc.envs.deadlines import Span
from rlc.envs.history import History, chunks_of
from rlc.envs.seeds import derive_seed
from rlc.envs.tool_chat import calls_of
from rlc.plan.records import FailurePlan, RewardPlan, RolloutsPlan, SamplingPlan
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, RunError, Turn, Usage
from rlc.runtime.rollouts.cooperative import EventLoopYield
from rlc.runtime.rollouts.environments import close_all
from rlc.runtime.rollouts.tokens import TOKEN, EpisodeTokens, TokenPrefix
from rlc.service.errors import ServiceLostError
from rlc.service.interface import SamplingClient
from rlc.service.pending_calls import pending_call

if TYPE_CHECKING:
    from tinker import types

T = TypeVar("T")


@frozen
class Task:
    """One task to play: ``size`` members from the same state. ``seed`` names its streams;
    ``order`` is the seed of the order in which the environment's tasks come, ``row`` the place in
    it, where that is not the number."""

    env: PlayableEnv
    number: int
    size: int
    seed: int
    order: int = 0
    row: int | None = None

    @property
    def key(self) -> TaskKey:
        """What the environment's source is asked for."""
        place = self.number if self.row is None else self.row
        return TaskKey(self.order, place, derive_seed(self.seed, "env"), self.size)


@frozen(eq=False)
class _Start:
    """Episodes of some members, open, and the first reply of each."""

    episodes: Sequence[AsyncEpisode]
    replies: Sequence[types.SampledSequence | None]  # None: asked for when it is their turn


@define(eq=False)
class _Attempt:
    """One member's episode in play: what there is of it, however it ends."""

    task: Task
    member: int
    seed: int
    seconds: dict[str, float]
    turns: list[Turn] = field(factory=list)
    begun: bool = False  # from then on it closes its episode itself


@define
class Player:
    """Plays tasks with one snapshot of the weights and counts the tokens it uses.

    ``sampling`` is the stage's; temperature and length of a reply are those of each environment.
    Every episode that is opened is closed, however it ends.
    """

    client: SamplingClient
    sampling: SamplingPlan
    context: int | None
    on_error: FailurePlan
    usage: Usage
    staleness: int = 0
    _pace: EventLoopYield = field(factory=EventLoopYield, init=False)

    async def play(self, task: Task) -> list[Rollout]:
        """All members of one task; the first reply of all comes from one request."""
        shared = _no_seconds()
        tries = [
            _Attempt(task, member, derive_seed(task.seed, "member", member), shared)
            for member in range(task.size)
        ]
        try:
            start = await self._start(task, range(task.size), task.seed, shared)
        except ServiceLostError:
            raise
        except Exception as error:
            return await all_of(self._again(one, error) for one in tries)
        try:
            return await all_of(
                self._member(one, episode, reply)
                for one, episode, reply in zip(tries, start.episodes, start.replies, strict=True)
            )
        finally:  # those of members that were cancelled before they began
            pairs = zip(tries, start.episodes, strict=True)
            if left := [episode for one, episode in pairs if not one.begun]:
                await close_all(left)

    async def _start(
        self, task: Task, members: Sequence[int], seed: int, seconds: dict[str, float]
    ) -> _Start:
        """Open the episodes of these members and ask for their first replies, all in one
        request. Raises whatever goes wrong, with nothing left open."""
        episodes = await self._opened(task, members, seconds)
        if any(joins(episode) for episode in episodes):
            return _Start(episodes, [None] * len(episodes))
        try:
            await self._pace.turn()
            first = checked(episodes[0].first)
            history = task.env.new_history()
            prompt = history.observe(first)
            if limit := self._over(EpisodeTokens(), prompt, task.env.plan.rollouts):
                raise RunError(
                    f"the first prompt of `{task.env.plan.name}` has {len(prompt)} tokens; with "
                    f"max_tokens = {task.env.plan.rollouts.max_tokens} that is over {limit[1]}"
                )
            seed = derive_seed(seed, "open")
            async with Span(task.env.plan.rollouts.turn_timeout, "a turn"):
                replies = await self._sample(task, prompt, history, len(members), seed, seconds)
            return _Start(episodes, replies)
        except BaseException:
            await close_all(episodes)
            raise

    async def _opened(
        self, task: Task, members: Sequence[int], seconds: dict[str, float]
    ) -> list[AsyncEpisode]:
        limit = task.env.plan.rollouts.step_timeout
        async with Span(limit, "opening the episode") as spent:
            episodes = await _call_environment(task.env.source.open(task.key, members))
        _count(seconds, "environment", spent)
        if len(episodes) != len(members):
            await close_all(episodes)
            raise ContractError(f"{len(members)} episodes are due, and there are {len(episodes)}")
        return episodes

    async def _member(
        self, one: _Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> Rollout:
        one.seconds = dict(one.seconds)  # from here on a member's seconds are its own
        try:
            return await self._episode(one, episode, reply)
        except ServiceLostError:  # no rollout is to blame, and none would fare better
            raise
        except Exception as error:  # whatever foreign environment code raises
            if joins(episode):  # a game is over for those who left it
                return self._failed(one, error)
            return await self._again(one, error)

    async def _again(self, one: _Attempt, error: Exception) -> Rollout:
        """Play a failed member afresh, from the same state, as often as the plan allows."""
        task, member, seconds = one.task, one.member, dict(one.seconds)
        for attempt in range(1, self.on_error.retries + 1):
            seed = derive_seed(task.seed, "member", member, "attempt", attempt)
            one = _Attempt(task, member, seed, seconds)
            try:
                start = await self._start(task, [member], seed, seconds)
                return await self._episode(one, start.episodes[0], start.replies[0])
            except ServiceLostError:
                raise
            except Exception as again:
                error = again
        return self._failed(one, error)

    def _failed(self, one: _Attempt, error: Exception) -> Rollout:
        """What the plan makes of a rollout that failed for good."""
        name, policy = one.task.env.plan.name, self.on_error
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        if policy.then == "stop":
            raise RunError(f"a rollout of `{name}` failed: {told}") from error
        played, credit = tuple[Turn, ...](), tuple[float, ...]()
        if policy.then == "penalise":
            assert policy.penalty is not None
            played = tuple(one.turns)
            credit = (*[0.0] * (len(played) - 1), policy.penalty)
        return Rollout(
            env=name,
            task=one.task.number,
            member=one.member,
            digest="",
            turns=played,
            ended="failed",
            credit=credit,
            error=told,
            cause=str(getattr(error, "cause", None) or type(error).__name__),
            staleness=self.staleness,
            seconds=one.seconds,
        )

    async def _episode(
        self, one: _Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> Rollout:
        """Play to the end, and close; ``one.turns`` holds what was played if that fails."""
        plan, one.begun = one.task.env.plan, True
        try:
            async with Span(plan.rollouts.timeout, "the episode"):
                ended = await self._turns(one, episode, reply)
            first = episode.first.text
        finally:
            await close_all([episode])
        return Rollout(
            env=plan.name,
            task=one.task.number,
            member=one.member,
            digest=blake2b(first.encode(), digest_size=8).hexdigest(),
            turns=tuple(one.turns),
            ended=ended,
            credit=episode_credit(plan.reward, one.turns, ended == "done"),
            staleness=self.staleness,
            seconds=one.seconds,
        )

    async def _turns(
        self, one: _Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> str:
        """Play turn after turn; gives how the episode ended."""
        task, turns, limits = one.task, one.turns, one.task.env.plan.rollouts
        history, seen, length = task.env.new_history(), await _first(one, episode), EpisodeTokens()
        while not seen.done:
            if len(turns) == limits.max_turns:
                return "turns"
            await self._pace.turn()
            prompt = history.observe(seen)
            if limit := self._over(length, prompt, limits):
                return limit[0]
            async with Span(limits.turn_timeout, "a turn"):
                if turns or reply is None:
                    seed = derive_seed(one.seed, "turn", len(turns))
                    (reply,) = await self._sample(task, prompt, history, 1, seed, one.seconds)
                    await self._pace.turn()
                kept = length.extend(prompt, reply.tokens)
                action = history.reply(reply.tokens)
                async with Span(limits.step_timeout, "a step of the environment") as spent:
                    holds = not joins(episode)
                    after = checked(await _call_environment(episode.play(action), holds))
            _count(one.seconds, "environment", spent)
            turns.append(_turn(kept, chunks_of(history), reply, seen.text, action, after))
            seen = after
        return "truncated" if seen.truncated else "done"

    def _over(
        self, length: EpisodeTokens, prompt: list[int], rollouts: RolloutsPlan
    ) -> tuple[str, str] | None:
        """Which limit another reply could break: how the episode then ends, and in words."""
        most, whole = self.sampling.max_prompt_tokens, self.sampling.max_episode_tokens
        if self.context is not None and len(prompt) + rollouts.max_tokens > self.context:
            return "context", f"the model's context of {self.context}"
        if most is not None and len(prompt) > most:
            return "prompt", f"max_prompt_tokens = {most}"
        if whole is not None and length.with_prompt(prompt) + rollouts.max_tokens > whole:
            return "tokens", f"max_episode_tokens = {whole}"
        return None

    async def _sample(
        self,
        task: Task,
        prompt: list[int],
        history: History,
        count: int,
        seed: int,
        seconds: dict[str, float],
    ) -> Sequence[types.SampledSequence]:
        params = _params(self.sampling, task.env.plan.rollouts, history.stop, seed)
        async with Span(None, "sampling") as spent:
            asked = model_input(prompt, chunks_of(history))
            response = await self.client.sample(asked, count, params)
        _count(seconds, "sampling", spent)
        # The prompt of the other samples of a request is billed as a cache hit.
        hits = response.prompt_cache_hit_tokens
        self.usage.prefill += len(prompt) - hits
        self.usage.cached += hits + (count - 1) * len(prompt)
        self.usage.sampled += sum(len(sequence.tokens) for sequence in response.sequences)
        return response.sequences


def episode_credit(
    plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool
) -> tuple[float, ...]:
    """What each turn counts for; nothing for an episode without a reward."""
    rewards_T = [turn.reward for turn in turns]
    credit = reduce_rewards(
        rewards_T,
        plan.reduce,
        nonterminal=plan.nonterminal,
        low=plan.low,
        high=plan.high,
        ended=ended_by_itself,
    )
    return credit or ()


def _params(
    sampling: SamplingPlan, rollouts: RolloutsPlan, stop: Any, seed: int
) -> types.SamplingParams:
    from tinker import types

    return types.SamplingParams(
        max_tokens=rollouts.max_tokens,
        temperature=rollouts.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop=stop,
        seed=seed % 2**31,
    )


def _turn(
    prompt: TokenPrefix,
    chunks: Chunks,
    reply: types.SampledSequence,
    observation: str,
    action: Action,
    after: Observation,
) -> Turn:
    if reply.logprobs is None:
        raise RunError("the service returned no logprobs for a sampled sequence")
    return Turn(
        prompt=prompt,
        tokens=array(TOKEN, reply.tokens),
        logprobs=array("d", reply.logprobs),
        observation=observation,
        action=action.text,
        reward=after.reward,
        stop_reason=reply.stop_reason,
        metrics=after.metrics,
        calls=tuple(calls_of(action.message or {})),
        chunks=chunks,
        sequence_id=reply.sequence_id,
    )


async def _first(one: _Attempt, episode: AsyncEpisode) -> Observation:
    """The opening observation; in a game, once it is this member's turn."""
    if not joins(episode):
        return checked(episode.first)
    limit = one.task.env.plan.rollouts.step_timeout
    async with Span(limit, "the first turn in the game") as spent:
        seen = checked(await _call_environment(episode.join(), holds=False))
    _count(one.seconds, "environment", spent)
    return seen


async def _call_environment(call: Awaitable[T], holds: bool = True) -> T:
    """What code that is not ours gives. Where it tries to end the program, or raises what looks
    like our own cancellation, only this call has failed. A call that ``holds`` up the next wave
    waits for nobody else's."""
    try:
        with pending_call() if holds else nullcontext():
            return await call
    except SystemExit as error:
        raise EnvError("the environment raised SystemExit") from error
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is None or ours.cancelling():
            raise
        raise EnvError("the environment raised CancelledError") from error


def _no_seconds() -> dict[str, float]:
    return {"sampling": 0.0, "environment": 0.0}


def _count(seconds: dict[str, float], kind: str, spent: Span) -> None:
    """Add a span; what was waited in it has an entry of its own, where there is any."""
    seconds[kind] += spent.worked
    if spent.waited:
        seconds["waiting"] = seconds.get("waiting", 0.0) + spent.waited
