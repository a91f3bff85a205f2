"""Matches: who moves when, against whom, and what becomes of those that do not end well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, evolve, field
from test_player import PLAN, SAMPLING, ScriptedSampler, WordHistory

from rlc.envs.build import PlayableEnv
from rlc.envs.games import GameSource
from rlc.envs.responders import ModelReply, ModelRequest, Responders
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.environments import PastPlan, PlayPlan, RewardPlan, RolloutsPlan
from rlc.plan.parts import FailurePlan, ModelState, Sampling
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts.groups import play_task
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task

pytestmark = pytest.mark.plain

SELF = PlayPlan(None, None, None, None, None)
AGAINST: Any = ModelState("opponent", None)  # type: ignore[arg-type]
DROP = FailurePlan(0, "drop", None)


@define
class Rounds:
    """Players move in turn; after so many moves the one who moved last has won."""

    seed: int
    players: int = 2
    moves: int = 4
    fail: Callable[[int], bool] = lambda _: False
    seat: int | None = 0
    said: list[str] = field(factory=list)

    @property
    def rewards(self) -> Sequence[float]:
        last = (len(self.said) - 1) % self.players
        return [1.0 if seat == last else -1.0 for seat in range(self.players)]

    def observe(self, seat: int) -> str:
        return f"{seat}: " + " ".join(self.said)

    def step(self, seat: int, action: str) -> None:
        self.said.append(action)
        if self.fail(len(self.said)):
            raise OSError("the board fell down")
        self.seat = (seat + 1) % self.players
        if len(self.said) == self.moves:
            self.seat = None


@define
class Scripted:
    """Answers with the number of what it was shown."""

    asked: list[ModelRequest] = field(factory=list)

    async def reply(self, question: ModelRequest) -> ModelReply:
        self.asked.append(evolve(question, messages=list(question.messages)))
        await asyncio.sleep(0)
        return ModelReply(f"opponent {len(question.messages)}", "stop")


def table(
    play: PlayPlan, responder: Scripted | None = None, seats: int = 2, **game: Any
) -> PlayableEnv:
    roles = {2: ["first", "second"], 3: ["debater", "debater", "judge"]}[seats]
    begin = lambda seed: Rounds(seed, players=seats, **game)  # noqa: E731
    plan = evolve(
        PLAN,
        source="python_game",
        args={"args": {}, "seats": roles},
        play=play,
        rollouts=RolloutsPlan(2, 0.5, 4, None, None),
        reward=RewardPlan("sum", None, None, None),
    )
    responders: Responders = lambda *_, **__: responder  # type: ignore[assignment]  # noqa: E731
    source = make_async(GameSource("rounds", seats, begin))
    return PlayableEnv(plan, source, WordHistory, responders=responders)


def played(
    env: PlayableEnv,
    size: int = 2,
    on_error: FailurePlan = DROP,
    number: int = 0,
    past: Scripted | None = None,
) -> list[Rollout]:
    pasts = {3: past} if past else {}
    player = Player(ScriptedSampler(), SAMPLING, None, on_error, Usage(), pasts=pasts)

    async def run() -> list[Rollout]:
        try:
            async with asyncio.timeout(20):
                return await play_task(player, Task(env, number, size, seed=1))
        finally:
            await env.source.close()

    return asyncio.run(run())


def table_of(rollouts: Sequence[Rollout]) -> list[tuple[int, str, int, float, str]]:
    return [(r.member, r.role, len(r.turns), r.reward, r.ended) for r in rollouts]


def test_in_self_play_each_seat_has_a_rollout() -> None:
    assert table_of(played(table(SELF))) == [
        (0, "first", 2, -1.0, "done"),
        (0, "second", 2, 1.0, "done"),
        (1, "first", 2, -1.0, "done"),
        (1, "second", 2, 1.0, "done"),
    ]


def test_a_seat_sees_the_moves_of_the_others_in_the_order_of_the_game() -> None:
    first, second = played(table(SELF), size=1)
    moves = [turn.action for pair in zip(first.turns, second.turns, strict=True) for turn in pair]
    assert [turn.observation for turn in first.turns] == ["0: ", f"0: {moves[0]} {moves[1]}"]
    assert second.turns[0].observation == f"1: {moves[0]}"
    assert first.last_metric("loss") == second.last_metric("win") == 1.0


def test_an_opponent_has_the_seats_that_are_not_trained() -> None:
    responder = Scripted()
    play = evolve(SELF, opponent=AGAINST, seat="second", max_tokens=9)
    (rollout,) = played(table(play, responder), size=1)
    assert (rollout.role, rollout.reward) == ("second", 1.0)
    assert rollout.turns[0].observation == "1: opponent 1"
    first, second = responder.asked
    assert first.messages == [{"role": "user", "content": "0: "}]
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
    assert first.sampling == Sampling(9, 0.5)  # its own, and the policy's
    assert first.key != second.key


def test_seats_are_taken_in_turn_over_the_matches_of_a_group_and_the_tasks() -> None:
    play = evolve(SELF, opponent=AGAINST, seat="any")
    roles = [
        [rollout.role for rollout in played(table(play, Scripted()), size=3, number=number)]
        for number in (0, 1)
    ]
    assert roles == [["first", "second", "first"], ["second", "first", "second"]]


def test_all_seats_of_a_role_are_trained_and_the_past_has_the_others() -> None:
    past = Scripted()
    play = evolve(SELF, past=PastPlan(3), seat="debater")
    rollouts = played(table(play, seats=3, moves=6), size=1, past=past)
    assert [(r.role, len(r.turns)) for r in rollouts] == [("debater", 2), ("debater", 2)]
    assert len(past.asked) == 2


def test_a_game_that_never_ends_is_cut_off_for_all() -> None:
    env = table(SELF, moves=10_000)
    limited = evolve(env.plan, rollouts=evolve(env.plan.rollouts, max_turns=3))
    assert table_of(played(evolve(env, plan=limited), size=1)) == [
        (0, "first", 3, 0.0, "turns"),
        (0, "second", 3, 0.0, "truncated"),
    ]


def test_an_opponent_that_moves_for_ever_is_cut_off() -> None:
    class Stubborn(Rounds):
        def step(self, seat: int, action: str) -> None:
            self.said.append(action)

    env = table(evolve(SELF, opponent=AGAINST, seat="second"), Scripted())
    source = make_async(GameSource("stubborn", 2, Stubborn))
    limited = evolve(env.plan, rollouts=evolve(env.plan.rollouts, max_turns=3))
    assert table_of(played(evolve(env, plan=limited, source=source), size=1)) == [
        (0, "second", 0, 0.0, "truncated")
    ]


def test_a_seat_whose_game_ended_before_its_first_move_has_won_all_the_same() -> None:
    play = evolve(SELF, opponent=AGAINST, seat="second")
    (rollout,) = played(table(play, Scripted(), moves=1), size=1)
    assert (rollout.turns, rollout.ended, rollout.credit) == ((), "done", (-1.0,))
    assert rollout.last_metric("loss") == 1.0


def test_a_seat_that_fails_ends_the_match_for_all() -> None:
    rollouts = played(table(SELF, fail=lambda moves: moves == 3), size=1)
    assert [(r.role, r.turns, r.credit, r.ended) for r in rollouts] == [
        ("first", (), (), "failed"),
        ("second", (), (), "failed"),
    ]
    errors = [rollout.error or "" for rollout in rollouts]
    assert "the board fell down" in errors[0]
    assert errors[1] == f"another seat failed: {errors[0]}"


def test_a_match_is_played_again_as_a_whole() -> None:
    tries = iter([True, False])
    env = table(SELF, fail=lambda moves: moves == 3 and next(tries, False))
    rollouts = played(env, size=1, on_error=FailurePlan(1, "stop", None))
    assert [len(rollout.turns) for rollout in rollouts] == [2, 2]
    assert [len(rollout.retried) for rollout in rollouts] == [1, 1]


def test_a_failed_seat_is_penalised_and_not_the_one_it_left_alone() -> None:
    env = table(SELF, fail=lambda moves: moves == 3)
    rollouts = played(env, size=1, on_error=FailurePlan(0, "penalise", -2.0))
    assert [rollout.credit for rollout in rollouts] == [(-2.0,), ()]


def test_a_failure_stops_the_run_where_the_recipe_says_so() -> None:
    env = table(SELF, fail=lambda moves: moves == 3)
    with pytest.raises(RunError, match="the board fell down"):
        played(env, on_error=FailurePlan(1, "stop", None))


def test_matches_of_a_group_begin_in_the_same_state() -> None:
    first, _, other, _ = played(table(SELF))
    assert first.digest == other.digest
