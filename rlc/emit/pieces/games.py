"""Environments of GEM, whose global random states are seeded each time."""

from __future__ import annotations

import copy
import random
from typing import Any

import gem
import numpy as np
from gem.wrappers.observation_wrapper import ObservationWrapper

from rlc.emit.pieces.records import Env
from rlc.emit.pieces.seeds import stream


class Game:
    """One environment; ``group`` gives copies of it in the same state."""

    def __init__(self, env: Env) -> None:
        random.seed(0)
        self.env = env
        self.prototype = gem.make(env.id, **env.args)

    def group(self, seed: int, size: int) -> tuple[str, list[Any]]:
        env = clone(self.prototype)
        if self.env.earlier:
            env = ObservationWrapper(
                env, include_action=False, include_chat_template=False
            )
        text, info = env.reset(seed=stream(seed, "reset") % 2**32)
        return self.shown(text, info), [clone(env) for _ in range(size)]

    def step(
        self, env: Any, seed: int, turn: int, action: str
    ) -> tuple[str, float, bool]:
        random.seed(stream(seed, "turn", turn))
        np.random.seed(stream(seed, "turn", turn) % 2**32)
        text, reward, terminated, truncated, info = env.step(action)
        done = bool(terminated or truncated)
        return self.shown(text, info), float(reward), done

    def shown(self, text: str, info: dict[str, Any]) -> str:
        """The observation; several games show their board in the suffix only."""
        if self.env.earlier:
            return text
        body = text if not text or text.endswith("\n") else text + "\n"
        return str(info.get("prefix", "")) + body + str(info.get("suffix", ""))


def clone(env: Any) -> Any:
    """A copy; the pool of questions of an `rg:` environment is shared."""
    pool = getattr(env.unwrapped, "ds", None)
    return copy.deepcopy(env, {} if pool is None else {id(pool): pool})
