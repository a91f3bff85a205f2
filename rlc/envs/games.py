"""Games for several seats, as episodes whose turns are the moves of all seats; docs/games.md has
examples.

``python_game("nim.py:Nim", seats = ["first", "second"])`` calls the class, or a function, for each
match, with a ``seed`` and the ``args`` of the recipe as keyword arguments. It returns a
:class:`Game` that has just begun, or an environment of GEM's ``MultiAgentEnv``, which is reset with
the seed. The same seed begins the same game. Calls may block: they are made in threads, or as
``workers()`` says.

An opponent may be a program: random legal moves, perfect play, or a function of the user's own,
which takes attributes of a :class:`GameView` by the names of its parameters, and ``args`` of the
recipe, and returns what a model would reply. It keeps nothing between two moves, so that a match
that is played again does not depend on those before.

TextArena (0.7) and GEM (0.1.0) draw from the global generators, which are seeded for each call, by
one game at a time, so that what others do changes nothing.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.catalog import textarena_facts
from rlc.chat import ContractError, EnvError, Observation
from rlc.data import PLAYER_SEES, called, explained, load_attribute, parameter_names
from rlc.envs.base import Episode
from rlc.envs.workers.threads import GLOBAL_RNG, ThreadWorkers
from rlc.plan import OUTCOMES, ScriptPlan
from rlc.seeds import derive_seed


def is_multiagent(made: Any) -> bool:
    """Return whether this is a ``gem.multiagent.MultiAgentEnv``, without importing GEM."""
    module = sys.modules.get("gem.multiagent")
    return module is not None and isinstance(made, module.MultiAgentEnv)


class MultiAgentGame:
    """A :class:`rlc.envs.games.Game` of GEM, already reset. Agents that act at once are asked one
    after the other, before any has acted. An agent's reward is the sum over its steps."""

    def __init__(self, env: Any, target: str, seed: int) -> None:
        self._env, self._target, self._seed, self._steps = env, target, seed, 0
        if not hasattr(env, "_make_np_random"):  # `reset(seed)` of 0.1.0 calls it, and lacks it
            import numpy as np

            env._make_np_random = np.random.default_rng
        self._seeded(lambda: env.reset(seed=seed % 2**32))
        self._names: list[str] = list(env.possible_agents)
        self._rewards = dict.fromkeys(self._names, 0.0)
        self._actions: dict[str, str] = {}

    @property
    def seat(self) -> int | None:
        if not self._env.agents:
            return None
        if (waiting := next((n for n in self._active() if n not in self._actions), None)) is None:
            raise ContractError(f"in `{self._target}` it is nobody's move, and it is not over")
        return self._names.index(waiting)

    @property
    def rewards(self) -> Sequence[float]:
        return [self._rewards[name] for name in self._names]

    def observe(self, seat: int) -> str:
        return str(self._env.observe(self._names[seat]))

    def step(self, seat: int, action: str) -> None:
        """Keep an agent's action; the last of the active agents lets all of them act."""
        self._actions[self._names[seat]] = action
        if any(name not in self._actions for name in self._active()):
            return
        actions, self._actions = self._actions, {}
        _, rewards, *_ = self._seeded(lambda: self._env.step(actions))
        for name, reward in rewards.items():
            self._rewards[name] += float(reward)

    def close(self) -> None:
        """Free the lock, which a move that hangs still holds."""
        GLOBAL_RNG.release(self)

    def _active(self) -> list[str]:
        selector = self._env.agent_selector
        active = self._env.agents if selector is None else selector.get_active_agents()
        return [name for name in active if name in self._env.agents]

    def _seeded(self, call: Callable[[], Any]) -> Any:
        import numpy as np

        with GLOBAL_RNG.held_by(self):
            self._steps += 1
            seed = derive_seed(self._seed, "step", self._steps)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            return call()


_GAME = -1  # the sender of what a game itself says
# What a game writes before the moves that it lists, and one of them.
_LISTED, _MOVE = re.compile(r"^(?:Available M|Valid m)oves: (.*)", re.M), re.compile(r"\[[^\]]*\]")


class TextArenaGame:
    """A :class:`rlc.envs.games.Game` of TextArena. A seat sees the messages since its last move, so
    that a chat has each of them once. Wrappers of the library put brackets around a bare move."""

    def __init__(self, env_id: str, players: int, seed: int, illegal: float | None = None) -> None:
        """``illegal``: the reward of an illegal move, which then ends the match, with 0 for others;
        None: as in the library, where a player may try again once. Raise EnvError if it cannot
        begin."""
        self._env_id, self._seed, self._moves = env_id, seed, 0
        try:
            self._env = import_textarena().make(env_id)
            with GLOBAL_RNG.held_by(self):
                self._env.reset(num_players=players, seed=seed % 2**32)
        except Exception as error:  # the library raises anything
            raise EnvError(f"TextArena cannot begin `{env_id}`: {explained(error)}") from error
        self._players, self._done, self._illegal = players, False, illegal
        if illegal is not None:
            self._state.error_allowance = 0
        self._listed: tuple[str, ...] | None = None

    @property
    def _state(self) -> Any:
        return self._env.state

    @property
    def seat(self) -> int | None:
        return None if self._done else int(self._state.current_player_id)

    @property
    def rewards(self) -> Sequence[float]:
        """The reward of each player; 0 for those of whom the game says nothing."""
        given = self._state.rewards or {}
        if self._illegal is not None and (lost := self._refused()):
            given = dict.fromkeys(lost, self._illegal)
        return [float(given.get(player, 0.0)) for player in range(self._players)]

    def observe(self, seat: int) -> str:  # noqa: ARG002  (the library knows whose move it is)
        """Return the new messages for the player with their senders, or the game's own text."""
        from textarena.core import Wrapper

        innermost = self._env
        while isinstance(innermost, Wrapper):
            innermost = innermost.env
        _, messages = innermost.get_observation()
        if isinstance(messages, str):
            self._listed = listed_moves(messages)
            return messages
        self._listed = listed_moves("\n".join(text for by, text, _ in messages if by == _GAME))
        names = self._state.role_mapping
        said = ((names.get(sender, f"Player {sender}"), text) for sender, text, _ in messages)
        return "\n".join(f"[{name}] {text}" for name, text in said)

    @property
    def legal_moves(self) -> tuple[str, ...] | None:
        """The moves that the last observation lists; None if it lists none that are all legal."""
        return self._listed if textarena_facts(self._env_id)["lists_moves"] else None

    def step(self, seat: int, action: str) -> None:  # noqa: ARG002
        self._moves += 1
        with GLOBAL_RNG.held_by(self):
            random.seed(derive_seed(self._seed, "move", self._moves))
            self._done, _ = self._env.step(action)
        self._done |= self._illegal is not None and bool(self._refused())

    def close(self) -> None:
        GLOBAL_RNG.release(self)

    def _refused(self) -> list[int]:
        """Return the players whose illegal move ended the game, or their part in it."""
        return [player for player, of in self._state.game_info.items() if of["invalid_move"]]


def listed_moves(text: str) -> tuple[str, ...] | None:
    """Return the moves of the last list in what a game writes; None without one."""
    lists = _LISTED.findall(text)
    return tuple(_MOVE.findall(lists[-1])) if lists else None


@cache
def import_textarena() -> Any:
    try:
        import textarena
    except ImportError as error:
        raise EnvError("TextArena is not installed: pip install 'rlc[games]'") from error
    return textarena


class Game(Protocol):
    """One game that has begun. ``seat`` is the one whose move it is, a number from 0; None once the
    game is over. ``rewards`` are then a number for each seat.

    Three attributes are optional. ``legal_moves`` is read after ``observe``: the moves that the
    seat may make, as texts, to which programs are held. The others are read once the game is over:
    ``winners``, the seats that have won (without it those with the highest reward; all: a draw;
    none: nobody can win), and ``metrics``, a mapping for each seat from names to numbers.
    """

    @property
    def seat(self) -> int | None: ...
    @property
    def rewards(self) -> Sequence[float]: ...

    def observe(self, seat: int) -> str:
        """Return the text that this seat sees now; called once before each of its moves."""

    def step(self, seat: int, action: str) -> None:
        """Play the seat's reply; an illegal move is up to the game."""


@frozen
class Move(Observation):
    """What the ``seat`` whose move it is sees, and its ``legal_moves``; None: the game does not say
    them. Once the game is over, ``ends`` has the last observation of each seat."""

    seat: int = 0
    legal_moves: tuple[str, ...] | None = None
    ends: tuple[Observation, ...] = ()


@frozen
class GameSource:
    """An :class:`rlc.envs.base.EnvSource` of matches, whose turns are the moves of all seats.
    ``begin`` makes a game of a seed; ``target`` is its name."""

    target: str
    seats: int
    begin: Callable[[int], Game]

    def group(self, seed: int, size: int) -> list[Episode]:
        return [GameEpisode(self, self.begin(seed)) for _ in range(size)]


def own_game(target: str, args: Mapping[str, Any], seed: int) -> Game:
    """Return a game of the user's own that has just begun."""
    game: Any = called(target, load_attribute(target), {**args, "seed": seed})
    return MultiAgentGame(game, target, seed) if is_multiagent(game) else game


def textarena_source(env_id: str, players: int, illegal: float | None = None) -> GameSource:
    """Return the matches of a :class:`TextArenaGame`. Raise EnvError without the library."""
    import_textarena()
    return GameSource(env_id, players, partial(TextArenaGame, env_id, players, illegal=illegal))


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
        if (close := getattr(self.game, "close", None)) is not None:
            close()

    def _move(self) -> Observation:
        """Return the next observation. Raise ContractError for an object that is no game."""
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
    """Return ``win``, ``draw`` and ``loss``, one of which is 1; nothing if nobody can win."""
    if winners is None:
        best = max(rewards)
        winners = [other for other, reward in enumerate(rewards) if reward == best]
    if not winners or len(rewards) == 1:
        return {}
    ended = "loss" if seat not in winners else "draw" if len(winners) == len(rewards) else "win"
    return {name: float(name == ended) for name in OUTCOMES}


@frozen
class GameView:
    """What a program sees before its move.

    ``legal_moves``: None if the game does not say them. ``seed``: a number for this move of this
    match. ``seat``: its number, from 0. ``history``: the earlier turns of the seat, each a pair of
    what it saw and what it played.
    """

    observation: str
    legal_moves: tuple[str, ...] | None
    seed: int
    seat: int
    history: tuple[tuple[str, str], ...]


@define(eq=False)
class OpponentProgram:
    """An opponent that is a program, for all matches of an environment, called in threads."""

    name: str
    _play: Callable[[GameView], Any]
    _threads: ThreadWorkers = field(factory=ThreadWorkers, init=False)

    async def move(self, seen: GameView) -> str:
        """Return a move. Raise ContractError if it is no text, EnvError if it is not legal."""
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
    if plan.function is None:
        players = {"random": random_move, "perfect": perfect_move}
        return OpponentProgram(f"{plan.player}()", players[plan.player])
    function = load_attribute(plan.function)
    names = [name for name in parameter_names(function) if name in PLAYER_SEES]

    def play(seen: GameView) -> Any:
        return function(**{name: getattr(seen, name) for name in names}, **plan.args)

    return OpponentProgram(plan.function, play)


def random_move(seen: GameView) -> str:
    """Return a legal move, all as likely. Raise EnvError if the game does not say them."""
    if not seen.legal_moves:
        raise EnvError(
            "`random()` plays games that say which moves are legal: give yours an attribute "
            "`legal_moves`, a list of texts"
        )
    return random.Random(seen.seed).choice(seen.legal_moves)


_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_ROW = re.compile(r"^ ([OX\d]) \| ([OX\d]) \| ([OX\d]) *$", re.MULTILINE)


def perfect_move(seen: GameView) -> str:
    """Return a best move in TextArena's TicTacToe by minimax, at random of those as good."""
    rows = _ROW.findall(seen.observation)[-3:]
    if len(rows) < 3:
        raise EnvError("`perfect()` finds no board of TicTacToe in what it is shown")
    board = tuple(mark if mark in "OX" else "" for row in rows for mark in row)
    worth = {cell: -_value(_after(board, cell)) for cell in _free(board)}
    best = [cell for cell, value in worth.items() if value == max(worth.values())]
    return f"[{random.Random(seen.seed).choice(best)}]"


@cache
def _value(board: tuple[str, ...]) -> int:
    """Return what a board is worth for the next to move: 1 for a win, 0 for a draw, -1."""
    if any(board[a] == board[b] == board[c] != "" for a, b, c in _LINES):
        return -1
    return max((-_value(_after(board, cell)) for cell in _free(board)), default=0)


def _free(board: tuple[str, ...]) -> list[int]:
    return [cell for cell, mark in enumerate(board) if not mark]


def _after(board: tuple[str, ...], cell: int) -> tuple[str, ...]:
    mark = "O" if board.count("O") == board.count("X") else "X"
    return (*board[:cell], mark, *board[cell + 1 :])
