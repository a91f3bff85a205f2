"""GEM's environments of several agents as games: subclasses of ``gem.multiagent.MultiAgentEnv``.

GEM 0.1.0 has the class, and no game that is made of it. Agents are seats, in the order of
``possible_agents``. Agents that act at once are asked one after the other, before any of them has
acted. An agent's reward is the sum over its steps.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rlc.chat import ContractError
from rlc.envs.gem.global_rng import GLOBAL_RNG
from rlc.seeds import derive_seed


def is_multiagent(made: Any) -> bool:
    """Whether something is such an environment. GEM is not imported to find out."""
    module = sys.modules.get("gem.multiagent")
    return module is not None and isinstance(made, module.MultiAgentEnv)


class MultiAgentGame:
    """One game that has begun. It is reset and stepped with the global generators seeded, one game
    at a time, for GEM's own games draw from those."""

    def __init__(self, env: Any, target: str, seed: int) -> None:
        self._env, self._target, self._seed, self._steps = env, target, seed, 0
        if not hasattr(env, "_make_np_random"):
            env._make_np_random = _generator  # `reset(seed)` of 0.1.0 calls it, and lacks it
        self._held(lambda: env.reset(seed=seed % 2**32))
        self._names: list[str] = list(env.possible_agents)
        self._rewards = dict.fromkeys(self._names, 0.0)
        self._actions: dict[str, str] = {}

    @property
    def seat(self) -> int | None:
        """The first of the agents whose move it is that has not moved yet."""
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
        """Keep an agent's action; the last of those whose move it is lets all of them act."""
        self._actions[self._names[seat]] = action
        if any(name not in self._actions for name in self._active()):
            return
        actions, self._actions = self._actions, {}
        _, rewards, *_ = self._held(lambda: self._env.step(actions))
        for name, reward in rewards.items():
            self._rewards[name] += float(reward)

    def close(self) -> None:
        """A move that hangs no longer holds the others up."""
        GLOBAL_RNG.release(self)

    def _active(self) -> list[str]:
        selector = self._env.agent_selector
        active = self._env.agents if selector is None else selector.get_active_agents()
        return [name for name in active if name in self._env.agents]

    def _held(self, call: Callable[[], Any]) -> Any:
        import numpy as np

        with GLOBAL_RNG.held_by(self):
            self._steps += 1
            seed = derive_seed(self._seed, "step", self._steps)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            return call()


def _generator(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed)
