"""The games of TextArena 0.7: ``textarena("TicTacToe-v0")``.

A seat sees the messages that have come for it since its last move, so that a chat, which keeps the
earlier ones, holds each of them once; the library's own wrappers would repeat them. Replies go
through the library's wrappers, which put brackets around a bare move.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from attrs import frozen

from rlc.catalog import textarena_facts
from rlc.chat import EnvError
from rlc.data import explained
from rlc.envs.games.game import Game, GameSource
from rlc.envs.gem.global_rng import GLOBAL_RNG
from rlc.seeds import derive_seed


def textarena_source(env_id: str, players: int, illegal: float | None = None) -> GameSource:
    """The matches of a game; see :class:`TextArenaGame` for ``illegal``. Raise EnvError if the
    library is not installed, or does not have the game."""
    import_textarena()
    return GameSource(env_id, players, _Begin(env_id, players, illegal))


@frozen
class _Begin:
    env_id: str
    players: int
    illegal: float | None

    def __call__(self, seed: int) -> Game:
        return TextArenaGame(self.env_id, self.players, seed, self.illegal)


_GAME = -1  # who sends what a game itself says
# What a game writes before the moves that it lists, and one of them.
_LISTED, _MOVE = re.compile(r"^(?:Available M|Valid m)oves: (.*)", re.M), re.compile(r"\[[^\]]*\]")


class TextArenaGame:
    """One game. It draws from the global generator, which is seeded for each of its moves, by one
    game at a time, so that what others do changes nothing."""

    def __init__(self, env_id: str, players: int, seed: int, illegal: float | None = None) -> None:
        """``illegal``: the reward of a move that the game does not allow, which then ends the
        match, with 0 for the others; None: as the library has it, which lets a player try again
        once. Raise EnvError if the game cannot be made."""
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
        """One a player; 0 for those of whom the game says nothing."""
        given = self._state.rewards or {}
        if self._illegal is not None and (lost := self._refused()):
            given = dict.fromkeys(lost, self._illegal)
        return [float(given.get(player, 0.0)) for player in range(self._players)]

    def observe(self, seat: int) -> str:  # noqa: ARG002  (the library knows whose move it is)
        """What has come for the player whose move it is since the last one, each message with its
        sender; a text that a game makes itself as it is."""
        _, messages = _innermost(self._env).get_observation()
        if isinstance(messages, str):
            self._listed = listed_moves(messages)
            return messages
        self._listed = listed_moves("\n".join(text for by, text, _ in messages if by == _GAME))
        names = self._state.role_mapping
        said = ((names.get(sender, f"Player {sender}"), text) for sender, text, _ in messages)
        return "\n".join(f"[{name}] {text}" for name, text in said)

    @property
    def legal_moves(self) -> tuple[str, ...] | None:
        """Those that the game has listed in what was observed last; None if it lists none that are
        all legal."""
        return self._listed if textarena_facts(self._env_id)["lists_moves"] else None

    def step(self, seat: int, action: str) -> None:  # noqa: ARG002
        self._moves += 1
        with GLOBAL_RNG.held_by(self):
            random.seed(derive_seed(self._seed, "move", self._moves))
            self._done, _ = self._env.step(action)
        self._done |= self._illegal is not None and bool(self._refused())

    def _refused(self) -> list[int]:
        """The players whose move ended the game, or their part in it, since it is not allowed."""
        return [player for player, of in self._state.game_info.items() if of["invalid_move"]]

    def close(self) -> None:
        """A move that hangs no longer holds the others up."""
        GLOBAL_RNG.release(self)


def listed_moves(text: str) -> tuple[str, ...] | None:
    """The moves of the last list in what a game writes; None without one."""
    lists = _LISTED.findall(text)
    return tuple(_MOVE.findall(lists[-1])) if lists else None


def _innermost(env: Any) -> Any:
    """A game without the library's wrappers."""
    from textarena.core import Wrapper

    while isinstance(env, Wrapper):
        env = env.env
    return env


@cache
def import_textarena() -> Any:
    """Raise EnvError if it is not installed."""
    try:
        import textarena
    except ImportError as error:
        raise EnvError("TextArena is not installed: pip install 'rlc[games]'") from error
    return textarena
