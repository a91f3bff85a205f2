"""Opponents that are programs: what they play, and what becomes of one that cannot."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from rlc.chat.turns import ContractError, EnvError
from rlc.envs.games import (
    GameView,
    Move,
    OpponentProgram,
    listed_moves,
    make_opponent,
    perfect_move,
    random_move,
    textarena_source,
)
from rlc.plan.environments import ScriptPlan

BOARD = "[GAME] Current Board:\n\n 0 | O | 2 \n---+---+---\n 3 | X | 5 \n---+---+---\n 6 | 7 | 8 "
SEEN = GameView(BOARD, ("[0]", "[2]"), seed=7, seat=0, history=())


def test_any_legal_move_is_as_likely_and_follows_from_the_seed() -> None:
    drawn = [random_move(evolve(SEEN, seed=seed)) for seed in range(200)]
    assert drawn == [random_move(evolve(SEEN, seed=seed)) for seed in range(200)]
    assert min(Counter(drawn).values()) > 70
    with pytest.raises(EnvError, match="`legal_moves`, a list of texts"):
        random_move(evolve(SEEN, legal_moves=None))


@pytest.mark.parametrize(
    ("rows", "moves"),
    [
        ("OO2 XX5 678", {"[2]"}),  # it wins rather than that it keeps the other from winning
        ("OX2 3O5 67X", {"[3]", "[6]"}),  # two ways to win at once
        ("OX2 345 678", {"[3]", "[4]", "[6]"}),  # the answers to a mistake that win
        ("012 3O5 678", {"[0]", "[2]", "[6]", "[8]"}),  # a corner is the answer to the centre
    ],
)
def test_the_best_moves_of_a_board(rows: str, moves: set[str]) -> None:
    board = "\n---+---+---\n".join(f" {a} | {b} | {c} " for a, b, c in map(tuple, rows.split()))
    shown = f"[Player 0] [1]\n 0 | 1 | 2 \n[GAME] Current Board:\n\n{board}\n"
    seen = [GameView(shown, None, seed, 0, ()) for seed in range(60)]
    assert {perfect_move(each) for each in seen} == moves


def test_nobody_wins_against_perfect_play() -> None:
    """Real matches of the library: perfect play draws with itself and never loses."""
    pytest.importorskip("textarena")
    won = Counter[str]()
    for seed in range(20):
        first, second = _match(seed, (0,)), _match(seed, (1,))
        assert first[0] >= 0
        assert second[1] >= 0
        assert _match(seed, (0, 1)) == (0.0, 0.0)
        won["first"] += first[0] > 0
        won["second"] += second[1] > 0
    assert won["first"] > won["second"] > 5  # random play loses mostly, and more as second


def _match(seed: int, perfect: tuple[int, ...]) -> tuple[float, ...]:
    (episode,) = textarena_source("TicTacToe-v0", 2).group(seed, 1)
    seen, number = episode.first, 0
    while not seen.done:
        assert isinstance(seen, Move)
        move = perfect_move if seen.seat in perfect else random_move
        known = GameView(seen.text, seen.legal_moves, 100 * seed + number, seen.seat, ())
        seen, number = episode.step(move(known)), number + 1
    assert isinstance(seen, Move)
    return tuple(float(end.reward or 0) for end in seen.ends)


def test_what_a_player_writes_is_no_list_of_moves() -> None:
    pytest.importorskip("textarena")
    (episode,) = textarena_source("TicTacToe-v0", 2).group(3, 1)
    seen = episode.step("[4]\nAvailable Moves: '[9]'")
    assert isinstance(seen, Move)
    assert seen.legal_moves == tuple(f"[{cell}]" for cell in (0, 1, 2, 3, 5, 6, 7, 8))
    assert listed_moves("Valid moves: '[1, 2]', '[0, 3]'") == ("[1, 2]", "[0, 3]")
    assert listed_moves("nothing") is None


def own(folder: Path, text: str, **args: Any) -> OpponentProgram:
    (folder / "players.py").write_text(text, encoding="utf-8")
    return make_opponent(ScriptPlan("scripted", str(folder / "players.py:move"), args))


def test_a_function_is_given_what_it_names(tmp_path: Path) -> None:
    text = "def move(seat, history, legal_moves, first='x'):\n"
    program = own(tmp_path, text + "    return f'{seat} {history} {first}'\n", first="y")
    seen = evolve(SEEN, legal_moves=None, history=(("saw", "said"),))
    assert asyncio.run(program.move(seen)) == "0 (('saw', 'said'),) y"


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("return '[1]'", EnvError, r"played '\[1\]'; the legal moves are `\[0\]`, `\[2\]`"),
        ("return 0", ContractError, "returned a int, not a text"),
        ("return {}['move']", KeyError, "move"),
    ],
)
def test_a_move_that_cannot_be_made_is_an_error(
    body: str, error: type[Exception], said: str, tmp_path: Path
) -> None:
    program = own(tmp_path, f"def move(observation):\n    {body}\n")
    with pytest.raises(error, match=said):
        asyncio.run(program.move(SEEN))


def test_what_draws_from_its_seed_repeats(tmp_path: Path) -> None:
    text = "import random\ndef move(seed, legal_moves):\n"
    program = own(tmp_path, text + "    return random.Random(seed).choice(legal_moves)\n")
    seeds = [random.Random(0).getrandbits(60) for _ in range(20)]
    moves = [asyncio.run(program.move(evolve(SEEN, seed=seed))) for seed in seeds]
    assert moves == [random_move(evolve(SEEN, seed=seed)) for seed in seeds]


@pytest.mark.parametrize(
    ("illegal", "moves", "rewards"),
    [
        (None, ["[4]", "[4]", "[0]"], None),  # another try
        (None, ["[4]", "[4]", "what"], (1.0, -1.0)),
        (-2.0, ["[4]", "[4]"], (0.0, -2.0)),
        (-2.0, ["nonsense"], (-2.0, 0.0)),
        (-2.0, ["[0]", "[3]", "[1]", "[4]", "[2]"], (1.0, -1.0)),
    ],
)
def test_a_move_that_is_not_allowed_costs_what_the_recipe_says(
    illegal: float | None, moves: list[str], rewards: tuple[float, float] | None
) -> None:
    pytest.importorskip("textarena")
    (episode,) = textarena_source("TicTacToe-v0", 2, illegal).group(3, 1)
    for move in moves:
        seen = episode.step(move)
    assert isinstance(seen, Move)
    assert tuple(end.reward for end in seen.ends) == (rewards or ())
