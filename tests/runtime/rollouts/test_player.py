"""Playing groups: shared prompts, seeds, failures, and the account of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve, field
from tinker import types

from rlc.chat.turns import Action, Observation
from rlc.envs.base import EnvSource, Episode
from rlc.envs.build import PlayableEnv
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan
from rlc.plan.parts import FailurePlan, SamplingPlan
from rlc.runtime.journal.metrics import rollout_metrics
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task

pytestmark = pytest.mark.plain

ROLLOUTS = RolloutsPlan(2, 1.0, 4, None, None)
REWARD = RewardPlan("turns", None, None, None)
SAMPLING = SamplingPlan(4)
DROP = FailurePlan(0, "drop", None)
PLAN = EnvPlan("count", 1.0, "fake", "count", {}, (), None, ROLLOUTS, REWARD)


@define
class Request:
    prompt: list[int]
    count: int
    seed: int | None
    max_tokens: int | None
    temperature: float


@define
class ScriptedSampler:
    """Answers every request with one sampled token, which follows from the prompt: members take
    their turns in any order."""

    requests: list[Request] = field(factory=list)

    def get_tokenizer(self) -> Any:
        raise NotImplementedError

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        **_: Any,
    ) -> types.SampleResponse:
        params = sampling_params
        self.requests.append(
            Request(
                prompt.to_ints(), num_samples, params.seed, params.max_tokens, params.temperature
            )
        )
        token = 100 + prompt.length
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

    def observe(self, observation: Observation) -> list[int]:
        self.tokens = [*self.tokens, len(observation.text)]
        return self.tokens

    def reply(self, tokens: list[int]) -> Action:
        self.tokens = self.tokens + tokens
        return Action(str(tokens))


def play(
    source: EnvSource,
    size: int = 2,
    context: int | None = None,
    failure: FailurePlan = DROP,
    sampling: SamplingPlan = SAMPLING,
    plan: EnvPlan = PLAN,
) -> tuple[list[Rollout], ScriptedSampler, Usage]:
    sampler, usage = ScriptedSampler(), Usage()
    player = Player(sampler, sampling, context, failure, usage, staleness=2)
    task = Task(PlayableEnv(plan, make_async(source), WordHistory), number=3, size=size, seed=11)
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
    assert sorted(map(repr, first.requests)) == sorted(map(repr, second.requests))


def test_a_shared_prompt_is_paid_once_and_read_from_the_cache_by_the_others() -> None:
    _, _, usage = play(CountingSource(length=1), size=4)
    assert (usage.prefill, usage.cached, usage.sampled) == (1, 3, 4)


def test_a_failed_member_is_played_again() -> None:
    rollouts, _, _ = play(CountingSource(fail=fails(1)), failure=FailurePlan(1, "drop", None))
    assert [rollout.error for rollout in rollouts] == [None, None]
    assert {rollout.retried for rollout in rollouts} == {(), ("OSError: the game crashed",)}
    assert rollout_metrics(rollouts, ())["rollouts/retried"] == 1


def test_a_member_that_keeps_failing_is_dropped_with_its_cause() -> None:
    rollouts, _, _ = play(CountingSource(fail=fails(99)), failure=FailurePlan(2, "drop", None))
    assert {rollout.error for rollout in rollouts} == {"OSError: the game crashed"}
    assert {len(rollout.retried) for rollout in rollouts} == {2}
    assert all(not rollout.turns for rollout in rollouts)


def test_or_stops_the_run_where_the_recipe_says_so() -> None:
    with pytest.raises(RunError, match="a rollout of `count` failed: OSError: the game crashed"):
        play(CountingSource(fail=fails(99)), failure=FailurePlan(0, "stop", None))


def test_an_episode_that_outgrows_the_context_ends_there() -> None:
    rollouts, _, _ = play(CountingSource(length=50), context=10)
    assert {rollout.ended for rollout in rollouts} == {"context"}
    assert all(len(turn.prompt) + 4 <= 10 for rollout in rollouts for turn in rollout.turns)


def test_a_first_prompt_over_the_context_says_how_long_it_is() -> None:
    rollouts, sampler, _ = play(CountingSource(), context=4)
    assert sampler.requests == []
    assert "has 1 tokens; with max_tokens = 4" in str(rollouts[0].error)


def test_an_environments_own_sampling_is_what_is_asked_for() -> None:
    plan = evolve(PLAN, rollouts=evolve(ROLLOUTS, temperature=0.25, max_tokens=3))
    _, sampler, _ = play(CountingSource(), plan=plan)
    asked = {(request.max_tokens, request.temperature) for request in sampler.requests}
    assert asked == {(3, 0.25)}


def test_a_prompt_over_its_limit_ends_the_episode() -> None:
    rollouts, _, _ = play(CountingSource(length=50), sampling=evolve(SAMPLING, max_prompt_tokens=5))
    assert {rollout.ended for rollout in rollouts} == {"prompt"}
    assert max(len(turn.prompt) for rollout in rollouts for turn in rollout.turns) == 5


def test_no_reply_is_asked_for_that_the_episode_could_not_hold() -> None:
    """Of a prompt, a reply and an observation each one token: 9 hold the fifth reply of 1."""
    sampling = evolve(SAMPLING, max_episode_tokens=9)
    rollouts, _, _ = play(CountingSource(length=50), sampling=sampling)
    assert {rollout.ended for rollout in rollouts} == {"tokens"}
    assert {len(rollout.turns) for rollout in rollouts} == {3}  # 5 tokens of prompt and up to 4


class ForgetfulHistory(WordHistory):
    """Starts over each turn: nothing of a prompt is in the next."""

    def observe(self, observation: Observation) -> list[int]:
        self.tokens = [7, len(observation.text)]
        return self.tokens


def test_prompts_that_start_over_all_count() -> None:
    sampler, sampling = ScriptedSampler(), evolve(SAMPLING, max_episode_tokens=12)
    player = Player(sampler, sampling, None, DROP, Usage())
    env = PlayableEnv(PLAN, make_async(CountingSource(length=50)), ForgetfulHistory)
    (rollout,) = asyncio.run(player.play(Task(env, number=0, size=1, seed=1)))
    assert (rollout.ended, len(rollout.turns)) == ("tokens", 3)  # 3 · 3 + 2 + 4 > 12


def fails_at(turn: int) -> Callable[[], bool]:
    """True once: in the given turn."""
    left = [turn]

    def fail() -> bool:
        left[0] -= 1
        return left[0] == 0

    return fail


def test_a_penalised_failure_keeps_what_was_played_and_counts() -> None:
    failure = FailurePlan(0, "penalise", -2.0)
    (rollout,) = play(CountingSource(5, fails_at(3)), size=1, failure=failure)[0]
    assert rollout.error == "OSError: the game crashed"
    assert len(rollout.turns) == 2
    assert rollout.credit == (0.0, -2.0)


def test_a_penalised_failure_before_the_first_turn_still_counts() -> None:
    failure = FailurePlan(0, "penalise", -2.0)
    rollouts, _, _ = play(CountingSource(), context=4, failure=failure)
    assert [(rollout.turns, rollout.credit) for rollout in rollouts] == [((), (-2.0,))] * 2


class HangingSampler(ScriptedSampler):
    """Answers the first request and then never again."""

    async def sample(self, *args: Any, **kwargs: Any) -> types.SampleResponse:
        if self.requests:
            await asyncio.Event().wait()
        return await super().sample(*args, **kwargs)


def test_an_episode_that_takes_too_long_is_a_failure_of_its_own() -> None:
    plan = evolve(PLAN, rollouts=evolve(ROLLOUTS, timeout=0.01))
    player = Player(HangingSampler(), SAMPLING, None, DROP, Usage())
    task = Task(
        PlayableEnv(plan, make_async(CountingSource()), WordHistory), number=0, size=2, seed=1
    )
    rollouts = asyncio.run(player.play(task))
    assert {rollout.error for rollout in rollouts} == {
        "OverdueError: the episode took longer than 10 ms"
    }


def test_rollouts_say_how_old_their_weights_are() -> None:
    rollouts, _, _ = play(CountingSource(fail=fails(1)))
    assert {rollout.staleness for rollout in rollouts} == {2}
