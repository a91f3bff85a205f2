"""Games of several seats as episodes of moves: one's own, and those of TextArena."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from rlc.chat.turns import ContractError, EnvError
from rlc.envs.games import GameEpisode, GameSource, Move, outcome


@define
class Count:
    """Two players count in turn; whoever says ``three`` has lost."""

    seed: int
    seat: int | None = 0
    said: int = 0
    rewards: tuple[float, ...] = (0.0, 0.0)
    extra: dict[str, Any] = field(factory=dict)

    def observe(self, seat: int) -> str:
        return f"player {seat}: {self.said} from {self.seed}"

    def step(self, seat: int, action: str) -> None:
        self.said += 1
        self.seat = 1 - seat
        if action == "three":
            self.seat, self.rewards = None, (-1.0, 1.0) if seat == 0 else (1.0, -1.0)


def match(seats: int = 2, **more: Any) -> GameEpisode:
    (episode,) = GameSource("count", seats, lambda seed: Count(seed, **more)).group(7, 1)
    assert isinstance(episode, GameEpisode)
    return episode


def test_a_match_is_an_episode_of_the_moves_of_all_seats() -> None:
    episode = match()
    first = episode.first
    assert isinstance(first, Move)
    assert (first.text, first.seat) == ("player 0: 0 from 7", 0)
    second = episode.step("one")
    assert isinstance(second, Move)
    assert (second.text, second.seat, second.done) == ("player 1: 1 from 7", 1, False)
    end = episode.step("three")
    assert isinstance(end, Move)
    assert end.done
    assert [(seen.reward, seen.done) for seen in end.ends] == [(1.0, True), (-1.0, True)]
    assert [seen.metrics for seen in end.ends] == [
        {"win": 1.0, "draw": 0.0, "loss": 0.0},
        {"win": 0.0, "draw": 0.0, "loss": 1.0},
    ]


@pytest.mark.parametrize(
    ("rewards", "winners", "expected"),
    [
        ((1.0, -1.0), None, ["win", "loss"]),
        ((0.5, 0.5), None, ["draw", "draw"]),
        ((1.0, 1.0, 0.0), None, ["win", "win", "loss"]),  # two of a team
        ((0.0, 3.0), (0,), ["win", "loss"]),  # the game knows better
        ((1.0, 0.0), (0, 1), ["draw", "draw"]),
        ((1.0, 0.0), (), [None, None]),  # nobody can win
        ((1.0,), None, [None]),
    ],
)
def test_who_has_won(
    rewards: tuple[float, ...], winners: tuple[int, ...] | None, expected: list[str | None]
) -> None:
    for seat, ended in enumerate(expected):
        found = outcome(seat, rewards, winners)
        assert [name for name, value in found.items() if value] == ([ended] if ended else [])


def test_a_game_may_say_more_of_its_seats() -> None:
    class Scored(Count):
        metrics: Any = ({"valid": 1.0}, {})
        winners = (1,)

    (episode,) = GameSource("count", 2, Scored).group(0, 1)
    (first, second) = episode.step("three").ends  # type: ignore[attr-defined]
    assert first.metrics == {"win": 0.0, "draw": 0.0, "loss": 1.0, "valid": 1.0}
    assert second.metrics == {"win": 1.0, "draw": 0.0, "loss": 0.0}


@pytest.mark.parametrize(
    ("seats", "more", "what"),
    [
        (2, {"seat": 2}, "has 2 seats, and it is the move of 2"),
        (3, {}, "has 3 seats, and its `rewards` are 2"),
    ],
)
def test_a_game_that_breaks_its_rules_is_refused(
    seats: int, more: dict[str, Any], what: str
) -> None:
    with pytest.raises(ContractError, match=what):
        match(seats, **more).step("three")


def test_what_is_no_game_is_refused() -> None:
    class Empty:
        seat = 0

    with pytest.raises(ContractError, match="gave a Empty without `observe`"):
        GameSource("empty", 2, lambda seed: Empty()).group(0, 1)  # type: ignore[arg-type, return-value]  # noqa: ARG005


def test_a_mistake_of_the_game_itself_is_shown_as_it_is() -> None:
    class Broken(Count):
        def observe(self, seat: int) -> str:
            return str(None.no_such)  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="no_such"):
        GameSource("broken", 2, Broken).group(0, 1)


def textarena(env_id: str, players: int) -> GameSource:
    pytest.importorskip("textarena")
    from rlc.envs.games import textarena_source

    return textarena_source(env_id, players)


def test_a_game_of_textarena_is_played_to_its_end() -> None:
    (episode,) = textarena("TicTacToe-v0", 2).group(5, 1)
    assert isinstance(episode.first, Move)
    assert "You are Player 0 in Tic Tac Toe" in episode.first.text
    seen: Any = None
    for cell, seat in zip((0, 3, 1, 4), (1, 0, 1, 0), strict=True):
        seen = episode.step(f"[{cell}]")
        assert seen.seat == seat
    assert "You are Player" not in seen.text  # each message is shown once
    end: Any = episode.step("2")  # the library puts brackets around it
    assert end.done
    assert [last.reward for last in end.ends] == [1.0, -1.0]


def test_a_move_that_is_none_is_asked_for_again() -> None:
    (episode,) = textarena("TicTacToe-v0", 2).group(5, 1)
    again: Any = episode.step("[11]")
    assert (again.seat, again.done) == (0, False)
    assert "Must be between 0 and 8" in again.text
    end: Any = episode.step("[12]")
    assert [last.reward for last in end.ends] == [-1.0, 1.0]


def test_the_dice_of_a_game_do_not_depend_on_what_else_is_played() -> None:
    source = textarena("PigDice-v0", 2)

    def texts(episodes: list[Any]) -> list[str]:
        return [episode.step("[roll]").text for _ in range(6) for episode in episodes]

    alone = texts(source.group(9, 1))
    together = texts([*source.group(9, 1), *source.group(3, 1)])
    assert together[::2] == alone


def test_a_game_that_cannot_be_begun_says_why() -> None:
    with pytest.raises(EnvError, match="TextArena cannot begin `TicTacToe-v0`"):
        textarena("TicTacToe-v0", 3).group(0, 1)
