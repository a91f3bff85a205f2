"""Playing groups of episodes against a sampling client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from rlc.algo.rewards import reduce_rewards
from rlc.envs.base import EnvError, Episode, NumberedSource, Observation
from rlc.envs.build import PlayableEnv
from rlc.envs.history import History
from rlc.envs.seeds import derive_seed
from rlc.plan.tree import FailurePlan, RewardPlan, RolloutsPlan, SamplingPlan
from rlc.run.records import Rollout, RunError, Turn, Usage
from rlc.run.tasks import all_of
from rlc.service.errors import ServiceLostError
from rlc.service.interface import SamplingClient

if TYPE_CHECKING:
    from tinker import types


@frozen
class Task:
    """One task to play: ``size`` members from the same state. ``seed`` names its streams;
    ``order`` is the seed of the order in which the environment's tasks come."""

    env: PlayableEnv
    number: int
    size: int
    seed: int
    order: int = 0

    def episodes(self, size: int) -> list[Episode]:
        """So many episodes of the task, all in the same state whenever they are asked for."""
        source = self.env.source
        if isinstance(source, NumberedSource):
            return source.numbered(self.order, self.number, size)
        return source.group(derive_seed(self.seed, "env"), size)


@define
class Player:
    """Plays tasks with one snapshot of the weights and counts the tokens it uses.

    ``sampling`` is the stage's; temperature and length of a reply are those of each environment.
    """

    client: SamplingClient
    sampling: SamplingPlan
    context: int | None
    on_error: FailurePlan
    usage: Usage
    staleness: int = 0

    async def play(self, task: Task) -> list[Rollout]:
        """All members of one task; the first reply of all comes from one request."""
        try:
            episodes = task.episodes(task.size)
            opening = await self._open(task, episodes[0])
        except ServiceLostError:
            raise
        except Exception as error:
            return await all_of(self._again(task, m, error, []) for m in range(task.size))
        members = [
            self._member(task, member, episode, opening[member])
            for member, episode in enumerate(episodes)
        ]
        return await all_of(members)

    async def _open(self, task: Task, episode: Episode) -> Sequence[types.SampledSequence]:
        history = task.env.new_history()
        prompt = history.observe(episode.first.text)
        if limit := self._over(_Length(), prompt, task.env.plan.rollouts):
            raise RunError(
                f"the first prompt of `{task.env.plan.name}` has {len(prompt)} tokens; with "
                f"max_tokens = {task.env.plan.rollouts.max_tokens} that is over {limit[1]}"
            )
        return await self._sample(task, prompt, history, task.size, derive_seed(task.seed, "open"))

    async def _member(
        self, task: Task, member: int, episode: Episode, opening: types.SampledSequence
    ) -> Rollout:
        seed, turns = derive_seed(task.seed, "member", member), list[Turn]()
        try:
            return await self._episode(task, member, episode, opening, seed, turns)
        except ServiceLostError:  # no rollout is to blame, and none would fare better
            raise
        except Exception as error:  # whatever foreign environment code raises
            return await self._again(task, member, error, turns)

    async def _again(self, task: Task, member: int, error: Exception, turns: list[Turn]) -> Rollout:
        """Play a failed member afresh, from the same state, as often as the plan allows."""
        for attempt in range(1, self.on_error.retries + 1):
            seed, turns = derive_seed(task.seed, "member", member, "attempt", attempt), []
            try:
                episode = task.episodes(task.size)[member]
                opening = (await self._open(evolve(task, size=1, seed=seed), episode))[0]
                return await self._episode(task, member, episode, opening, seed, turns)
            except ServiceLostError:
                raise
            except Exception as again:
                error = again
        return self._failed(task, member, error, turns)

    def _failed(self, task: Task, member: int, error: Exception, turns: list[Turn]) -> Rollout:
        """What the plan makes of a rollout that failed for good."""
        name, policy = task.env.plan.name, self.on_error
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        if policy.then == "stop":
            raise RunError(f"a rollout of `{name}` failed: {cause}") from error
        played, credit = tuple[Turn, ...](), tuple[float, ...]()
        if policy.then == "penalise":
            assert policy.penalty is not None
            played = tuple(turns)
            credit = (*[0.0] * (len(turns) - 1), policy.penalty)
        return Rollout(
            name, task.number, member, "", played, "failed", credit, cause, "", self.staleness
        )

    async def _episode(
        self,
        task: Task,
        member: int,
        episode: Episode,
        opening: types.SampledSequence,
        seed: int,
        turns: list[Turn],
    ) -> Rollout:
        """Play to the end; ``turns`` holds what was played if that is not reached."""
        plan = task.env.plan
        try:
            async with asyncio.timeout(plan.rollouts.timeout) as timer:
                ended = await self._turns(task, episode, opening, seed, turns)
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise EnvError(f"the episode took longer than {plan.rollouts.timeout:g} s") from error
        digest = blake2b(episode.first.text.encode(), digest_size=8).hexdigest()
        credit = episode_credit(plan.reward, turns, ended == "done")
        return Rollout(
            env=plan.name,
            task=task.number,
            member=member,
            digest=digest,
            turns=tuple(turns),
            ended=ended,
            credit=credit,
            staleness=self.staleness,
        )

    async def _turns(
        self,
        task: Task,
        episode: Episode,
        opening: types.SampledSequence,
        seed: int,
        turns: list[Turn],
    ) -> str:
        """Play turn after turn; gives how the episode ended."""
        history, seen, length = task.env.new_history(), episode.first, _Length()
        while not seen.done:
            prompt = history.observe(seen.text)
            if limit := self._over(length, prompt, task.env.plan.rollouts):
                return limit[0]
            reply = opening
            if turns:
                turn_seed = derive_seed(seed, "turn", len(turns))
                reply = (await self._sample(task, prompt, history, 1, turn_seed))[0]
            length.extend(prompt, reply.tokens)
            action = history.reply(reply.tokens)
            after = episode.step(action)
            turns.append(_turn(prompt, reply, seen.text, action, after))
            seen = after
        return "done"

    def _over(
        self, length: _Length, prompt: list[int], rollouts: RolloutsPlan
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
        self, task: Task, prompt: list[int], history: History, count: int, seed: int
    ) -> Sequence[types.SampledSequence]:
        from tinker import types

        params = _params(self.sampling, task.env.plan.rollouts, history.stop, seed)
        response = await self.client.sample(types.ModelInput.from_ints(prompt), count, params)
        # The prompt of the other samples of a request is billed as a cache hit.
        hits = response.prompt_cache_hit_tokens
        self.usage.prefill += len(prompt) - hits
        self.usage.cached += hits + (count - 1) * len(prompt)
        self.usage.sampled += sum(len(sequence.tokens) for sequence in response.sequences)
        return response.sequences


@define
class _Length:
    """The tokens of an episode so far; those that a prompt repeats count once."""

    before: int = 0  # in sequences that were left behind
    current: list[int] = field(factory=list)

    def with_prompt(self, prompt: list[int]) -> int:
        """The length if this prompt came next."""
        return self.before + self._left_behind(prompt) + len(prompt)

    def extend(self, prompt: list[int], reply: Sequence[int]) -> None:
        self.before += self._left_behind(prompt)
        self.current = [*prompt, *reply]

    def _left_behind(self, prompt: list[int]) -> int:
        """Tokens of the current sequence, if ``prompt`` does not go on from them."""
        known = len(self.current)
        return 0 if prompt[:known] == self.current else known


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
    prompt: list[int],
    reply: types.SampledSequence,
    observation: str,
    action: str,
    after: Observation,
) -> Turn:
    if reply.logprobs is None:
        raise RunError("the service returned no logprobs for a sampled sequence")
    return Turn(
        prompt=prompt,
        tokens=list(reply.tokens),
        logprobs=list(reply.logprobs),
        observation=observation,
        action=action,
        reward=after.reward,
        stop_reason=reply.stop_reason,
        metrics=after.metrics,
    )
