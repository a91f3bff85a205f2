"""Playing groups: shared prompts, seeds, failures, and the account of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest
from attrs import define, field
from tinker import types

from rlc.envs.base import Episode, Observation
from rlc.envs.build import PlayableEnv
from rlc.plan.tree import EnvPlan, FailurePlan, SamplingPlan
from rlc.run.records import Rollout, RunError, Usage
from rlc.run.rollout import Player, Task

PLAN = EnvPlan("count", 1.0, "fake", "count", {}, (), None)


@define
class Request:
    prompt: list[int]
    count: int
    seed: int | None


@define
class ScriptedSampler:
    """Answers every request with its running number as the one sampled token."""

    requests: list[Request] = field(factory=list)

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
    ) -> types.SampleResponse:
        self.requests.append(Request(prompt.to_ints(), num_samples, sampling_params.seed))
        token = 100 + len(self.requests)
        sequence = types.SampledSequence(
            stop_reason="stop", sequence_id="", _tokens_list=[token], _logprobs_list=[-0.5]
        )
        return types.SampleResponse(sequences=[sequence] * num_samples)

    async def compute_logprobs(self, prompt: types.ModelInput) -> list[float | None]:
        raise AssertionError("not asked for in a rollout")


@define
class CountingEpisode:
    """Ends after ``length`` turns, one point each; ``fail`` says whether a step raises."""

    length: int
    fail: Callable[[], bool]
    first: Observation = field(factory=lambda: Observation("go"))
    turns: int = 0

    def step(self, action: str) -> Observation:
        if self.fail():
            raise OSError("the game crashed")
        self.turns += 1
        return Observation(f"turn {self.turns}", 1.0, self.turns >= self.length)


@define
class CountingSource:
    length: int = 2
    fail: Callable[[], bool] = lambda: False

    def group(self, seed: int, size: int) -> list[Episode]:
        return [CountingEpisode(self.length, self.fail) for _ in range(size)]


class WordHistory:
    """One token for each observation; keeps everything as a prefix."""

    stop: list[int] | list[str] | None = None

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def observe(self, text: str) -> list[int]:
        self.tokens = [*self.tokens, len(text)]
        return self.tokens

    def reply(self, tokens: list[int]) -> str:
        self.tokens = self.tokens + tokens
        return str(tokens)


def play(
    source: CountingSource,
    size: int = 2,
    context: int | None = None,
    retries: int = 0,
    then: Literal["drop", "stop"] = "drop",
) -> tuple[list[Rollout], ScriptedSampler, Usage]:
    sampler, usage = ScriptedSampler(), Usage()
    failure = FailurePlan(retries, then)
    player = Player(sampler, SamplingPlan(4, 1.0, 1.0, -1), context, failure, usage)
    task = Task(PlayableEnv(PLAN, source, WordHistory), number=3, size=size, seed=11)
    return asyncio.run(player.play(task)), sampler, usage


def fails(times: int) -> Callable[[], bool]:
    """True for the first ``times`` calls."""
    left = [times]

    def fail() -> bool:
        left[0] -= 1
        return left[0] >= 0

    return fail


def test_the_first_reply_of_a_group_is_one_request() -> None:
    rollouts, sampler, _ = play(CountingSource(), size=3)
    assert [request.count for request in sampler.requests] == [3, 1, 1, 1]
    assert {rollout.task for rollout in rollouts} == {3}
    assert len({rollout.digest for rollout in rollouts}) == 1
    assert [rollout.reward for rollout in rollouts] == [2.0, 2.0, 2.0]


def test_every_request_has_a_seed_of_its_own() -> None:
    _, sampler, _ = play(CountingSource(length=3), size=4)
    seeds = [request.seed for request in sampler.requests]
    assert len(set(seeds)) == len(seeds)


def test_the_same_task_asks_for_the_same_things() -> None:
    first, second = play(CountingSource(3))[1], play(CountingSource(3))[1]
    assert first.requests == second.requests


def test_a_shared_prompt_is_paid_once_and_read_from_the_cache_by_the_others() -> None:
    _, _, usage = play(CountingSource(length=1), size=4)
    assert (usage.prefill, usage.cached, usage.sampled) == (1, 3, 4)


def test_a_failed_member_is_played_again() -> None:
    rollouts, _, _ = play(CountingSource(fail=fails(1)), retries=1)
    assert [rollout.error for rollout in rollouts] == [None, None]


def test_a_member_that_keeps_failing_is_dropped_with_its_cause() -> None:
    rollouts, _, _ = play(CountingSource(fail=fails(99)), retries=2)
    assert {rollout.error for rollout in rollouts} == {"OSError: the game crashed"}
    assert all(not rollout.turns for rollout in rollouts)


def test_or_stops_the_run_where_the_recipe_says_so() -> None:
    with pytest.raises(RunError, match="a rollout of `count` failed: OSError: the game crashed"):
        play(CountingSource(fail=fails(99)), then="stop")


def test_an_episode_that_outgrows_the_context_ends_there() -> None:
    rollouts, _, _ = play(CountingSource(length=50), context=10)
    assert {rollout.ended for rollout in rollouts} == {"context"}
    assert all(len(turn.prompt) + 4 <= 10 for rollout in rollouts for turn in rollout.turns)


def test_a_first_prompt_over_the_context_says_how_long_it_is() -> None:
    rollouts, sampler, _ = play(CountingSource(), context=4)
    assert sampler.requests == []
    assert "has 1 tokens; with max_tokens = 4" in str(rollouts[0].error)
