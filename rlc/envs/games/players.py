"""Opponents that are programs: a legal move at random, perfect play, a function of one's own.

A program is shown what its seat sees before each of its moves, and returns what a model would
reply. It keeps nothing between two moves, so that a match that is played again, by a resumed run or
because a seat has failed, does not depend on those before. A function of the user's own asks for
what it needs by the names of its parameters:

``observation``
    what the seat sees now, a text
``legal_moves``
    the moves that it may make, a tuple of texts; None if the game does not say them
``seed``
    a number for this move of this match: ``random.Random(seed)``
``seat``
    the number of the seat, from 0
``history``
    the earlier turns of the seat in this match, each a pair of what it saw and what it played

    def cautious(observation, legal_moves, seed, depth=2):
        return random.Random(seed).choice(legal_moves)
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from attrs import asdict, define, field, frozen

from rlc.chat import ContractError, EnvError
from rlc.data import PLAYER_SEES, load_attribute, parameter_names
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan import ScriptPlan


@frozen
class GameView:
    """What a program knows when it is its move: see above."""

    observation: str
    legal_moves: tuple[str, ...] | None
    seed: int
    seat: int
    history: tuple[tuple[str, str], ...]


@define(eq=False)
class OpponentProgram:
    """An opponent that is a program, for all matches of an environment: ``name`` is its own, and
    its calls are made in threads."""

    name: str
    _play: Callable[[GameView], Any]
    _threads: ThreadWorkers = field(factory=ThreadWorkers, init=False)

    async def move(self, seen: GameView) -> str:
        """Return its move. Raise what it raises, ContractError if it returns no text, and EnvError
        if its move is not legal."""
        move = await self._threads.call(self._play, seen)
        if not isinstance(move, str):
            given = type(move).__name__
            raise ContractError(f"the opponent `{self.name}` returned a {given}, not a text")
        if seen.legal_moves is not None and move.strip() not in seen.legal_moves:
            legal = ", ".join(f"`{one}`" for one in seen.legal_moves) or "none"
            what = f"the opponent `{self.name}` played {move!r}; the legal moves are {legal}"
            raise EnvError(what)
        return move


def make_opponent(plan: ScriptPlan) -> OpponentProgram:
    """The opponent of a plan. Raise DataError if there is no such function."""
    if plan.function is None:
        return OpponentProgram(f"{plan.player}()", _PLAYERS[plan.player])
    function = load_attribute(plan.function)
    return OpponentProgram(plan.function, _Own(function, plan.args, parameter_names(function)))


@frozen
class _Own:
    function: Callable[..., Any]
    args: Mapping[str, Any]
    named: list[str]

    def __call__(self, seen: GameView) -> Any:
        shown = asdict(seen, recurse=False)
        given = {name: shown[name] for name in PLAYER_SEES if name in self.named}
        return self.function(**given, **self.args)


def random_move(seen: GameView) -> str:
    """One of the legal moves, all as likely. Raise EnvError if the game does not say them."""
    if not seen.legal_moves:
        raise EnvError(
            "`random()` plays games that say which moves are legal: give yours an attribute "
            "`legal_moves`, a list of texts"
        )
    return random.Random(seen.seed).choice(seen.legal_moves)


_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_ROW = re.compile(r"^ ([OX\d]) \| ([OX\d]) \| ([OX\d]) *$", re.MULTILINE)


def perfect_move(seen: GameView) -> str:
    """A best move in TextArena's TicTacToe by minimax, drawn from all that are as good."""
    rows = _ROW.findall(seen.observation)[-3:]
    if len(rows) < 3:
        raise EnvError("`perfect()` finds no board of TicTacToe in what it is shown")
    board = tuple(mark if mark in "OX" else "" for row in rows for mark in row)
    worth = {cell: -_value(_after(board, cell)) for cell in _free(board)}
    best = [cell for cell, value in worth.items() if value == max(worth.values())]
    return f"[{random.Random(seen.seed).choice(best)}]"


@cache
def _value(board: tuple[str, ...]) -> int:
    """What a board is worth for who moves next: 1 if that wins, 0 for a draw, -1."""
    if any(board[a] == board[b] == board[c] != "" for a, b, c in _LINES):
        return -1
    return max((-_value(_after(board, cell)) for cell in _free(board)), default=0)


def _free(board: tuple[str, ...]) -> list[int]:
    return [cell for cell, mark in enumerate(board) if not mark]


def _after(board: tuple[str, ...], cell: int) -> tuple[str, ...]:
    """The board after the next move; O begins."""
    mark = "O" if board.count("O") == board.count("X") else "X"
    return (*board[:cell], mark, *board[cell + 1 :])


_PLAYERS: Mapping[str, Callable[[GameView], str]] = {"random": random_move, "perfect": perfect_move}
