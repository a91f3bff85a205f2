"""Rollouts that own their loop, played turn by turn from another one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import PolicyClient, PolicyReply, PolicyRequest
from rlc.envs.verifiers.callback import CallbackEpisode, begin_alike
from rlc.envs.workers.threads import EventLoopThread

Rollout = Callable[[PolicyClient], Coroutine[Any, Any, Any]]


def ask(policy: PolicyClient, text: str) -> Coroutine[Any, Any, PolicyReply]:
    return policy.reply(PolicyRequest([{"role": "user", "content": text}]))


async def finish(result: Any) -> Observation:
    return Observation("", float(result), done=True)


def played(*rollouts: Rollout, play: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
    """What ``play`` gives with episodes that have begun, which are closed however that ends."""

    async def run() -> Any:
        loop = EventLoopThread()
        episodes = [CallbackEpisode("this", loop, rollout, finish) for rollout in rollouts]
        try:
            await begin_alike("this", episodes)
            try:
                return await play(*episodes)
            finally:
                await asyncio.gather(*(one.close() for one in episodes))
        finally:
            loop.close()

    return asyncio.run(run())


async def all_of(episode: CallbackEpisode[Any], *replies: str) -> list[Observation]:
    return [episode.first, *[await episode.play(Action(reply)) for reply in replies]]


async def adds_up(policy: PolicyClient) -> int:
    total = 0
    for text in ("one", "two"):
        total += len((await ask(policy, text)).message["content"])
    return total


def test_each_question_is_an_observation_and_the_result_the_last() -> None:
    first, second, last = played(adds_up, play=lambda one: all_of(one, "abc", "de"))
    assert (first.text, second.text, second.done) == ("one", "two", False)
    assert (last.reward, last.done) == (5.0, True)


def test_questions_at_the_same_time_are_answered_one_after_the_other() -> None:
    async def both(policy: PolicyClient) -> int:
        one, two = await asyncio.gather(ask(policy, "a"), ask(policy, "b"))
        return int(one.message["content"]) - int(two.message["content"])

    seen = played(both, play=lambda one: all_of(one, "7", "4"))
    assert [each.text for each in seen] == ["a", "b", ""]
    assert seen[-1].reward == 3.0


def test_a_question_that_nobody_waits_for_any_more_is_passed_over() -> None:
    async def impatient(policy: PolicyClient) -> int:
        first = asyncio.ensure_future(ask(policy, "a"))
        second = asyncio.ensure_future(ask(policy, "b"))
        await first
        second.cancel()
        return len((await ask(policy, "c")).message["content"])

    async def play(one: CallbackEpisode[Any]) -> list[str]:
        texts = [one.first.text]
        while not (seen := await one.play(Action("xy"))).done:
            texts.append(seen.text)
        return [*texts, str(seen.reward)]

    assert played(impatient, play=play) in (["a", "c", "2.0"], ["a", "b", "c", "2.0"])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
def test_what_a_rollout_raises_is_raised_to_who_plays(error: BaseException) -> None:
    async def fails(policy: PolicyClient) -> int:
        await ask(policy, "a")
        raise error

    with pytest.raises((type(error), EnvError)):
        played(fails, play=lambda one: all_of(one, "x"))


def test_an_episode_without_a_question_is_refused() -> None:
    async def mute(policy: PolicyClient) -> int:
        return 1

    with pytest.raises(EnvError, match="without asking for a reply"):
        played(mute, play=all_of)


def test_a_group_that_begins_differently_is_refused_and_closed() -> None:
    closed = list[str]()

    def begins(text: str) -> Rollout:
        async def rollout(policy: PolicyClient) -> int:
            try:
                await ask(policy, text)
            finally:
                closed.append(text)
            return 0

        return rollout

    with pytest.raises(EnvError, match="different prompts"):
        played(begins("a"), begins("b"), play=all_of)
    assert sorted(closed) == ["a", "b"]


def test_a_rollout_that_is_cut_short_or_takes_too_long_is_cleaned_up() -> None:
    closed, before = list[str](), threading.active_count()

    async def endless(policy: PolicyClient) -> int:
        try:
            await ask(policy, "a")
            await asyncio.Event().wait()
        finally:
            closed.append("endless")
        return 0

    async def play(one: CallbackEpisode[Any]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await one.play(Action("x"))

    played(endless, play=play)
    assert closed == ["endless"]
    assert threading.active_count() == before
