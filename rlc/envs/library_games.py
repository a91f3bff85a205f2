"""Games of libraries: TextArena's (0.7), and environments of GEM's ``MultiAgentEnv`` (0.1.0).

Both draw from the global generators, which are seeded for each call, by one game at a time, so that
what others do changes nothing.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rlc.catalog import textarena_facts
from rlc.chat import ContractError, EnvError
from rlc.data import explained
from rlc.envs.workers.threads import GLOBAL_RNG
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
    that a chat has each of them once; the library's own wrappers would repeat them. Those wrappers
    put brackets around a bare move."""

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
        """Return the messages for the player whose move it is since the last one, each with its
        sender; a text that a game makes itself as it is."""
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
