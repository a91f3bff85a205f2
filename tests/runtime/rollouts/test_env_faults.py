"""Environments that go wrong: the failure policy decides, and the others never notice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from attrs import define, evolve, field
from faulty_games import RELEASE, AsyncGames, Games
from test_player import (
    PLAN,
    REWARD,
    ROLLOUTS,
    SAMPLING,
    HangingSampler,
    ScriptedSampler,
    WordHistory,
)
from tinker import types

from rlc.chat.turns import Action, Observation
from rlc.envs.base import AsyncEpisode, AsyncSource, TaskKey
from rlc.envs.build import PlayableEnv
from rlc.envs.deadlines import waiting
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.environments import EnvPlan
from rlc.plan.parts import FailurePlan
from rlc.plan.units import elapsed
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts import player
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task

pytestmark = pytest.mark.plain

DROP = FailurePlan(0, "drop", None)
SOON = 0.5  # seconds after which a step that hangs is given up in these tests

# What becomes of each fault: its cause in a word, and what is told.
TOLD = {
    "raises": ("OSError", "OSError: the game crashed"),
    "stops iterating": ("environment", "EnvError: the environment raised StopIteration"),
    "exits": ("environment", "EnvError: the environment raised SystemExit"),
    "cancels": ("environment", "EnvError: the environment raised CancelledError"),
    "NaN reward": ("contract", "ContractError: the reward is nan, not a finite number"),
    "infinite reward": ("contract", "ContractError: the reward is -inf, not a finite number"),
    "array reward": ("contract", "ContractError: the reward is a ndarray, not a number"),
    "text reward": ("contract", "ContractError: the reward is a str, not a number"),
    "no text": ("contract", "ContractError: the observation is a NoneType, not text"),
    "bytes": ("contract", "ContractError: the observation is a bytes, not text"),
    "NaN metric": ("contract", "ContractError: the metric `correct` is nan, not a finite number"),
    "a tuple": ("contract", "ContractError: the environment gave a tuple, not an Observation"),
    "nothing": ("contract", "ContractError: the environment gave a NoneType, not an Observation"),
    "hangs": (
        "timeout", f"OverdueError: a step of the environment took longer than {elapsed(SOON)}"
    ),
}  # fmt: skip
BOTH = pytest.mark.parametrize("kind", ["blocking", "awaiting"])


def source_of(kind: str, games: Games) -> AsyncSource:
    return make_async(games) if kind == "blocking" else AsyncGames(games)


def play(
    source: AsyncSource,
    size: int = 3,
    failure: FailurePlan = DROP,
    sampler: ScriptedSampler | None = None,
    plan: EnvPlan = PLAN,
    **limits: Any,
) -> list[Rollout]:
    plan = evolve(plan, rollouts=evolve(ROLLOUTS, **{"step_timeout": 5.0, **limits}))
    player = Player(sampler or ScriptedSampler(), SAMPLING, None, failure, Usage())
    task = Task(PlayableEnv(plan, source, WordHistory), number=3, size=size, seed=11)

    async def bounded() -> list[Rollout]:
        async with asyncio.timeout(30):  # never reached, unless something hangs
            return await player.play(task)

    return asyncio.run(bounded())


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    RELEASE.clear()
    yield
    RELEASE.set()


def seen(rollout: Rollout) -> Any:
    return rollout.reward, rollout.ended, [turn.observation for turn in rollout.turns]


@BOTH
@pytest.mark.parametrize("fault", TOLD)
def test_one_that_goes_wrong_is_counted_and_leaves_the_others_alone(fault: str, kind: str) -> None:
    games = Games(fault)
    undisturbed = play(source_of(kind, Games()))
    first, faulty, last = play(source_of(kind, games), step_timeout=SOON)
    told = TOLD[fault]
    if (fault, kind) == ("stops iterating", "awaiting"):  # Python itself makes this of it
        told = ("RuntimeError", "RuntimeError: coroutine raised StopIteration")
    assert (faulty.cause, faulty.error) == told
    assert (faulty.ended, faulty.credit, faulty.turns) == ("failed", (), ())
    assert [seen(first), seen(last)] == [seen(undisturbed[0]), seen(undisturbed[2])]
    assert all(game.closed for game in games.made)


@BOTH
@pytest.mark.parametrize("fault", TOLD)
def test_every_policy_deals_with_every_fault(fault: str, kind: str) -> None:
    penalise = FailurePlan(0, "penalise", -2.0)
    penalised = play(source_of(kind, Games(fault)), failure=penalise, step_timeout=SOON)[1]
    assert (len(penalised.turns), penalised.credit) == (1, (-2.0,))
    stop = FailurePlan(0, "stop", None)
    with pytest.raises(RunError, match="a rollout of `count` failed: "):
        play(source_of(kind, Games(fault)), failure=stop, step_timeout=SOON)
    games = Games(fault, times=1)
    retry = FailurePlan(1, "drop", None)
    again = play(source_of(kind, games), failure=retry, step_timeout=SOON)
    assert [rollout.error for rollout in again] == [None] * 3
    assert {rollout.reward for rollout in again} == {1.0}
    assert all(game.closed for game in games.made[:3])


@BOTH
@pytest.mark.parametrize("fault", ["float32", "truth value", "whole number"])
def test_numbers_of_other_kinds_are_numbers(fault: str, kind: str) -> None:
    rollouts = play(source_of(kind, Games(fault)))
    assert [rollout.reward for rollout in rollouts] == [1.0] * 3
    assert {type(turn.reward) for rollout in rollouts for turn in rollout.turns} == {float}


class SilentSampler(ScriptedSampler):
    """Replies without a single token."""

    async def sample(self, *args: Any, **kwargs: Any) -> types.SampleResponse:
        response = await super().sample(*args, **kwargs)
        empty = types.SampledSequence(
            stop_reason="stop", sequence_id="", _tokens_list=[], _logprobs_list=[]
        )
        return types.SampleResponse(sequences=[empty] * len(response.sequences))


@BOTH
@pytest.mark.parametrize("sampler", [ScriptedSampler, SilentSampler])
def test_an_episode_that_never_ends_is_cut_short(sampler: type[ScriptedSampler], kind: str) -> None:
    plan = evolve(PLAN, reward=evolve(REWARD, nonterminal=-0.5))
    rollouts = play(source_of(kind, Games("endless")), sampler=sampler(), plan=plan, max_turns=7)
    assert [rollout.ended for rollout in rollouts] == ["done", "turns", "done"]
    assert len(rollouts[1].turns) == 7
    assert rollouts[1].reward == -0.5  # what the recipe gives those that do not end by themselves


@define(eq=False)
class Opening:
    """A source whose opening goes wrong the first ``times`` times."""

    games: Games
    how: str
    times: int

    def group(self, seed: int, size: int) -> list[Any]:
        self.times -= 1
        made = self.games.group(seed, size)
        if self.times >= 0:
            if self.how == "raises":
                raise OSError("no board")
            if self.how == "hangs":
                RELEASE.wait(30)
            if self.how == "too few":
                return made[:1]
            made[0].first = Observation(3)  # type: ignore[arg-type, misc]
        return made


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", "OSError: no board"),
        ("hangs", "OverdueError: opening the episode took longer than 500 ms"),
        ("no text", "ContractError: the observation is a int, not text"),
        ("too few", "ContractError: 3 episodes are due, and there are 1"),
    ],
)
def test_a_group_that_does_not_open_fails_as_a_whole_or_is_opened_again(
    how: str, told: str
) -> None:
    failed = play(make_async(Opening(Games(), how, 10**6)), step_timeout=SOON)
    assert [rollout.error for rollout in failed] == [told] * 3
    retry = FailurePlan(1, "drop", None)
    again = play(make_async(Opening(Games(), how, 1)), failure=retry, step_timeout=SOON)
    assert [seen(rollout) for rollout in again] == [seen(r) for r in play(make_async(Games()))]


def test_a_turn_has_a_deadline_that_includes_its_reply() -> None:
    rollouts = play(make_async(Games()), sampler=HangingSampler(), turn_timeout=0.02)
    assert {rollout.error for rollout in rollouts} == {
        "OverdueError: a turn took longer than 20 ms"
    }


@define(eq=False)
class Watched:
    """Notes which episodes are open; ``closing`` says how closing one goes wrong."""

    games: AsyncGames
    closing: str = "fine"
    open_: set[int] = field(factory=set)

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        episodes = await self.games.open(task, members)
        return [_Watched(self, episode) for episode in episodes]

    async def close(self) -> None:
        """There is nothing to let go of."""


@define(eq=False)
class _Watched:
    source: Watched
    episode: AsyncEpisode

    def __attrs_post_init__(self) -> None:
        self.source.open_.add(id(self))

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        return await self.episode.play(action)

    async def close(self) -> None:
        self.source.open_.discard(id(self))
        if self.source.closing == "raises":
            raise OSError("cannot be closed")
        if self.source.closing == "hangs":
            await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_an_episode_that_does_not_close_is_told_and_counts_all_the_same(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(player, "CLOSE_SECONDS", 0.01)
    rollouts = play(Watched(AsyncGames(Games()), how))
    assert [rollout.reward for rollout in rollouts] == [1.0] * 3
    assert "an environment did not close" in caplog.text


def test_a_run_that_is_cancelled_closes_what_is_open() -> None:
    source = Watched(AsyncGames(Games("hangs", faulty=None)))

    async def test() -> int:
        player = Player(ScriptedSampler(), SAMPLING, None, DROP, Usage())
        task = Task(PlayableEnv(PLAN, source, WordHistory), number=0, size=3, seed=1)
        playing = asyncio.ensure_future(player.play(task))
        while not all(game.turns for game in source.games.games.made) or not source.open_:
            await asyncio.sleep(0)
        was_open = len(source.open_)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return was_open

    assert asyncio.run(test()) == 3
    assert not source.open_


def test_a_stop_closes_the_episodes_of_the_others() -> None:
    source = Watched(AsyncGames(Games("raises")))
    with pytest.raises(RunError):
        play(source, failure=FailurePlan(0, "stop", None))
    assert not source.open_


@define(eq=False)
class Slotted:
    """An environment with one slot: whoever plays holds it until the end."""

    games: AsyncGames
    slot: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(1))
    held: float = 0.03

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        return [_Slotted(self, episode) for episode in await self.games.open(task, members)]

    async def close(self) -> None:
        """There is nothing to let go of."""


@define(eq=False)
class _Slotted:
    source: Slotted
    episode: AsyncEpisode
    has_slot: bool = False

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        if not self.has_slot:
            with waiting():
                await self.source.slot.acquire()
            self.has_slot = True
            await asyncio.sleep(self.source.held)
        return await self.episode.play(action)

    async def close(self) -> None:
        if self.has_slot:
            self.source.slot.release()
        self.has_slot = False


def test_waiting_for_a_slot_counts_for_no_deadline() -> None:
    """Six members that need 0.03 s each, one after another, with 0.15 s for each of them."""
    rollouts = play(
        Slotted(AsyncGames(Games())), size=6, timeout=0.15, turn_timeout=0.15, step_timeout=0.15
    )
    assert [rollout.error for rollout in rollouts] == [None] * 6
    waited = sorted(rollout.seconds.get("waiting", 0.0) for rollout in rollouts)
    assert waited[0] < 0.03
    assert waited[-1] > 0.12
    assert all(0.03 <= rollout.seconds["environment"] < 0.12 for rollout in rollouts)


def test_a_step_that_hangs_stops_neither_the_group_nor_the_program() -> None:
    """Its thread never ends, and no one waits for it."""
    before = threading.active_count()
    rollouts = play(make_async(Games("hangs")), step_timeout=SOON)
    assert [rollout.cause for rollout in rollouts] == [None, "timeout", None]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "rlc-env")
    assert threading.active_count() <= before + 3
