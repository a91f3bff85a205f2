"""The games of TextArena 0.7: ``textarena("TicTacToe-v0")``.

A seat sees the messages that have come for it since its last move, so that a chat, which keeps the
earlier ones, holds each of them once; the library's own wrappers would repeat them. Replies go
through the library's wrappers, which put brackets around a bare move.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from attrs import frozen

from rlc.data.code.functions import explained
from rlc.envs.base import EnvError
from rlc.envs.games.game import Game, GameSource
from rlc.envs.gem.global_rng import GLOBAL_RNG
from rlc.seeds import derive_seed


def textarena_source(env_id: str, players: int) -> GameSource:
    """Raise EnvError if the library is not installed, or does not have the game."""
    import_textarena()
    return GameSource(env_id, players, _Begin(env_id, players))


@frozen
class _Begin:
    env_id: str
    players: int

    def __call__(self, seed: int) -> Game:
        return TextArenaGame(self.env_id, self.players, seed)


class TextArenaGame:
    """One game. It draws from the global generator, which is seeded for each of its moves, by one
    game at a time, so that what others do changes nothing."""

    def __init__(self, env_id: str, players: int, seed: int) -> None:
        """Raise EnvError if the game cannot be made."""
        self._seed, self._moves = seed, 0
        try:
            self._env = import_textarena().make(env_id)
            with GLOBAL_RNG.held_by(self):
                self._env.reset(num_players=players, seed=seed % 2**32)
        except Exception as error:  # the library raises anything
            raise EnvError(f"TextArena cannot begin `{env_id}`: {explained(error)}") from error
        self._players, self._done = players, False

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
        return [float(given.get(player, 0.0)) for player in range(self._players)]

    def observe(self, seat: int) -> str:  # noqa: ARG002  (the library knows whose move it is)
        """What has come for the player whose move it is since the last one, each message with its
        sender; a text that a game makes itself as it is."""
        _, messages = _innermost(self._env).get_observation()
        if isinstance(messages, str):
            return messages
        names = self._state.role_mapping
        said = ((names.get(sender, f"Player {sender}"), text) for sender, text, _ in messages)
        return "\n".join(f"[{name}] {text}" for name, text in said)

    def step(self, seat: int, action: str) -> None:  # noqa: ARG002
        self._moves += 1
        with GLOBAL_RNG.held_by(self):
            random.seed(derive_seed(self._seed, "move", self._moves))
            self._done, _ = self._env.step(action)

    def close(self) -> None:
        """A move that hangs no longer holds the others up."""
        GLOBAL_RNG.release(self)


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
