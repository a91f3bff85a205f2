"""Games for several seats: ``python_game("nim.py:Nim", seats = ["first", "second"])``.

The class, or a function, is called for each match, with a ``seed`` and the ``args`` of the recipe
as keyword arguments, and returns a game that has just begun:

``seat``
    the seat whose move it is, a number from 0; None once the game is over
``observe(seat)``
    what this seat sees now, a text; asked once before each of its moves
``step(seat, action)``
    plays the seat's reply. What becomes of one that is no move is the game's own affair
``rewards``
    once it is over, a number for each seat

    class Nim:
        def __init__(self, seed, heap=5):
            self.heap, self.seat, self.rewards = heap, 0, (0.0, 0.0)

        def observe(self, seat):
            return f"{self.heap} matches are left. Take 1 or 2; who takes the last one wins."

        def step(self, seat, action):
            taken = int(action) if action.strip() in ("1", "2") else self.heap + 1
            self.heap -= taken
            if self.heap > 0:
                self.seat = 1 - seat
            else:
                self.seat, won = None, seat if self.heap == 0 else 1 - seat
                self.rewards = (1.0, -1.0) if won == 0 else (-1.0, 1.0)

Three attributes are optional. ``legal_moves`` is read after ``observe``: the moves that the seat
may make, as texts, to which opponents that are programs are held. The others are read once the game
is over. ``winners`` are the seats that have won; without it those whose reward is the highest. If
all seats have won it is a draw, and if none has, nobody can: a proposer and a solver do not win.
``metrics`` has a mapping for each seat, from names to numbers.

An environment of GEM's ``MultiAgentEnv`` that the call returns is such a game, too, and is reset
with the seed (:mod:`rlc.envs.games.multiagent`).

The same seed begins the same game. Calls may block: they are made in threads, or as ``workers()``
says. Draw from a generator of your own, ``random.Random(seed)``: the global ones are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.chat import ContractError, Observation
from rlc.data import called, load_attribute
from rlc.envs.base import Episode
from rlc.envs.games.multiagent import MultiAgentGame, is_multiagent
from rlc.plan import OUTCOMES


class Game(Protocol):
    """One game that has begun, as above."""

    @property
    def seat(self) -> int | None: ...
    @property
    def rewards(self) -> Sequence[float]: ...
    def observe(self, seat: int) -> str: ...
    def step(self, seat: int, action: str) -> None: ...


@frozen
class Move(Observation):
    """What the ``seat`` whose move it is sees, and its ``legal_moves``; None: the game does not say
    them. Once the game is over, ``ends`` has the last observation of each seat."""

    seat: int = 0
    legal_moves: tuple[str, ...] | None = None
    ends: tuple[Observation, ...] = ()


@frozen
class GameSource:
    """The matches of a game, as episodes whose turns are the moves of all seats. See
    :class:`rlc.envs.base.EnvSource`. ``begin`` makes a game of a seed; ``target`` is its name."""

    target: str
    seats: int
    begin: Callable[[int], Game]

    def group(self, seed: int, size: int) -> list[Episode]:
        return [GameEpisode(self, self.begin(seed)) for _ in range(size)]


@frozen
class OwnGame:
    """Begins a game of the user's own."""

    target: str
    args: Mapping[str, Any]

    def __call__(self, seed: int) -> Game:
        game: Any = called(self.target, load_attribute(self.target), {**self.args, "seed": seed})
        return MultiAgentGame(game, self.target, seed) if is_multiagent(game) else game


@define(eq=False)
class GameEpisode:
    """One match, from its first move on."""

    source: GameSource
    game: Game
    first: Observation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.first = self._move()

    def step(self, action: str) -> Observation:
        assert self.game.seat is not None, "a game that is over has no more moves"
        self.game.step(self.game.seat, action)
        return self._move()

    def close(self) -> None:
        """Close the game, if it can be closed."""
        if (close := getattr(self.game, "close", None)) is not None:
            close()

    def _move(self) -> Observation:
        """What comes next, a :class:`Move` in a game of several seats. Raise ContractError for an
        object that is no game."""
        game, target, seats = self.game, self.source.target, self.source.seats
        try:
            seat = game.seat
            if seat is None:
                ends = self._ends()
                return Move("", done=True, ends=ends) if seats > 1 else ends[0]
            if type(seat) is not int or not 0 <= seat < seats:
                raise ContractError(f"`{target}` has {seats} seats, and it is the move of {seat!r}")
            return Move(game.observe(seat), seat=seat, legal_moves=self._legal_moves())
        except AttributeError as error:
            if getattr(error, "obj", None) is not game:
                raise
            what = f"`{target}` gave a {type(game).__name__} without `{error.name}`"
            raise ContractError(what) from error

    def _legal_moves(self) -> tuple[str, ...] | None:
        moves = getattr(self.game, "legal_moves", None)
        if moves is None:
            return None
        texts = isinstance(moves, Sequence) and all(isinstance(move, str) for move in moves)
        if isinstance(moves, str) or not texts:
            given = type(moves).__name__
            what = f"the `legal_moves` of `{self.source.target}` are a {given}, not a list of texts"
            raise ContractError(what)
        return tuple(moves)

    def _ends(self) -> tuple[Observation, ...]:
        """The last observation of each seat."""
        rewards = tuple(self.game.rewards)
        metrics = tuple(getattr(self.game, "metrics", None) or ({} for _ in rewards))
        for name, given in (("rewards", rewards), ("metrics", metrics)):
            if len(given) != self.source.seats:
                due = f"`{self.source.target}` has {self.source.seats} seats"
                raise ContractError(f"{due}, and its `{name}` are {len(given)}")
        winners = getattr(self.game, "winners", None)
        return tuple(
            Observation("", reward, True, {**outcome(seat, rewards, winners), **own})
            for seat, (reward, own) in enumerate(zip(rewards, metrics, strict=True))
        )


def outcome(seat: int, rewards: Sequence[float], winners: Sequence[int] | None) -> dict[str, float]:
    """Return ``win``, ``draw`` and ``loss``, one of which is 1; nothing for a game without winners,
    or of a single seat."""
    if winners is None:
        best = max(rewards)
        winners = [other for other, reward in enumerate(rewards) if reward == best]
    if not winners or len(rewards) == 1:
        return {}
    ended = "loss" if seat not in winners else "draw" if len(winners) == len(rewards) else "win"
    return {name: float(name == ended) for name in OUTCOMES}
