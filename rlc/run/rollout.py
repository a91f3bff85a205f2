"""Playing groups of episodes against a sampling client."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, frozen

from rlc.envs.base import Episode
from rlc.envs.build import PlayableEnv
from rlc.envs.history import History
from rlc.envs.seeds import derive_seed
from rlc.plan.tree import FailurePlan, SamplingPlan
from rlc.run.records import Rollout, RunError, Turn, Usage
from rlc.run.tasks import all_of
from rlc.service.interface import SamplingClient

if TYPE_CHECKING:
    from tinker import types


@frozen
class Task:
    """One task to play: ``size`` members from the same state. ``seed`` names its streams."""

    env: PlayableEnv
    number: int
    size: int
    seed: int


@define
class Player:
    """Plays tasks with one snapshot of the weights and counts the tokens it uses."""

    client: SamplingClient
    sampling: SamplingPlan
    context: int | None
    on_error: FailurePlan
    usage: Usage

    async def play(self, task: Task) -> list[Rollout]:
        """All members of one task; the first reply of all comes from one request."""
        try:
            episodes = task.env.source.group(derive_seed(task.seed, "env"), task.size)
            opening = await self._open(task, episodes[0])
        except Exception as error:
            return await all_of(self._again(task, member, error) for member in range(task.size))
        members = [
            self._member(task, member, episode, opening[member])
            for member, episode in enumerate(episodes)
        ]
        return await all_of(members)

    async def _open(self, task: Task, episode: Episode) -> Sequence[types.SampledSequence]:
        history = task.env.new_history()
        prompt = history.observe(episode.first.text)
        if self._overflows(prompt):
            raise RunError(
                f"the first prompt of `{task.env.plan.name}` has {len(prompt)} tokens; with "
                f"max_tokens = {self.sampling.max_tokens} that is over the model's context of "
                f"{self.context}"
            )
        return await self._sample(prompt, history, task.size, derive_seed(task.seed, "open"))

    async def _member(
        self, task: Task, member: int, episode: Episode, opening: types.SampledSequence
    ) -> Rollout:
        seed = derive_seed(task.seed, "member", member)
        try:
            return await self._episode(task, member, episode, opening, seed)
        except Exception as error:  # whatever foreign environment code raises
            return await self._again(task, member, error)

    async def _again(self, task: Task, member: int, error: Exception) -> Rollout:
        """Play a failed member afresh, from the same state, as often as the plan allows."""
        for attempt in range(1, self.on_error.retries + 1):
            seed = derive_seed(task.seed, "member", member, "attempt", attempt)
            try:
                episode = task.env.source.group(derive_seed(task.seed, "env"), task.size)[member]
                opening = (await self._open(evolve(task, size=1, seed=seed), episode))[0]
                return await self._episode(task, member, episode, opening, seed)
            except Exception as again:
                error = again
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        if self.on_error.then == "stop":
            raise RunError(f"a rollout of `{task.env.plan.name}` failed: {cause}") from error
        return Rollout(task.env.plan.name, task.number, member, "", (), "failed", cause)

    async def _episode(
        self,
        task: Task,
        member: int,
        episode: Episode,
        opening: types.SampledSequence,
        seed: int,
    ) -> Rollout:
        history = task.env.new_history()
        seen, turns, ended = episode.first, list[Turn](), "done"
        while not seen.done:
            prompt = history.observe(seen.text)
            if self._overflows(prompt):
                ended = "context"
                break
            reply = opening
            if turns:
                turn_seed = derive_seed(seed, "turn", len(turns))
                reply = (await self._sample(prompt, history, 1, turn_seed))[0]
            action = history.reply(reply.tokens)
            after = episode.step(action)
            turns.append(_turn(prompt, reply, seen.text, action, after.reward))
            seen = after
        digest = blake2b(episode.first.text.encode(), digest_size=8).hexdigest()
        return Rollout(task.env.plan.name, task.number, member, digest, tuple(turns), ended)

    def _overflows(self, prompt: list[int]) -> bool:
        return self.context is not None and len(prompt) + self.sampling.max_tokens > self.context

    async def _sample(
        self, prompt: list[int], history: History, count: int, seed: int
    ) -> Sequence[types.SampledSequence]:
        from tinker import types

        params = _params(self.sampling, history.stop, seed)
        response = await self.client.sample(types.ModelInput.from_ints(prompt), count, params)
        # The prompt of the other samples of a request is billed as a cache hit.
        hits = response.prompt_cache_hit_tokens
        self.usage.prefill += len(prompt) - hits
        self.usage.cached += hits + (count - 1) * len(prompt)
        self.usage.sampled += sum(len(sequence.tokens) for sequence in response.sequences)
        return response.sequences


def _params(sampling: SamplingPlan, stop: Any, seed: int) -> types.SamplingParams:
    from tinker import types

    return types.SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop=stop,
        seed=seed % 2**31,
    )


def _turn(
    prompt: list[int], reply: types.SampledSequence, observation: str, action: str, reward: float
) -> Turn:
    if reply.logprobs is None:
        raise RunError("the service returned no logprobs for a sampled sequence")
    return Turn(
        prompt=prompt,
        tokens=list(reply.tokens),
        logprobs=list(reply.logprobs),
        observation=observation,
        action=action,
        reward=reward,
        stop_reason=reply.stop_reason,
    )
