"""Environments of GEM, whose global random states are seeded each time"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

import gem
import numpy as np

from rlc.seeds import derive_seed


class Gem:
    """Tasks of one environment; the members of a group have copies of it in the same state. Without
    a history (``bare``) some games show their board only beside the observation."""

    def __init__(self, name: str, wrapped: Any = None, bare: bool = True, **args: Any) -> None:
        random.seed(0)
        self.env, self.bare = gem.make(name, **args), bare
        self.wrapped = wrapped or (lambda env: env)  # puts tools and a history around it
        # Their scorers may raise for an answer that is not in their form: it is just wrong.
        self.strict = not name.startswith(("rg:", "qa:", "logic:"))

    async def open(self, _number: int, seed: int, size: int) -> list[Game]:
        env = self.wrapped(clone(self.env))
        text, info = env.reset(seed=derive_seed(seed, "reset") % 2**32)
        seeds = [derive_seed(seed, "member", member) for member in range(size)]
        return [Game(self, clone(env), self.shown(text, info), own) for own in seeds]

    def shown(self, text: str, info: dict[str, Any]) -> str:
        body = text if not self.bare or not text or text.endswith("\n") else text + "\n"
        around = (str(info.get(name, "")) if self.bare else "" for name in ("prefix", "suffix"))
        return body.join(around)


@dataclass
class Game:
    tasks: Gem
    env: Any
    first: str
    seed: int
    turn: int = 0

    async def step(self, action: str) -> tuple[str, float, bool]:
        self.turn += 1
        seed = derive_seed(self.seed, "turn", self.turn)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            text, reward, terminated, truncated, info = self.env.step(action)
        except Exception:
            if self.tasks.strict:
                raise
            return "", 0.0, True
        return self.tasks.shown(text, info), float(reward), bool(terminated or truncated)


def clone(env: Any) -> Any:
    """A copy; what is only read, such as the questions of an `rg:` environment, is shared."""
    names = ("ds", "dataset", "dataset_iter", "mp_pool", "thread_pool_executer")
    parts = [getattr(env.unwrapped, name, None) for name in names]
    return copy.deepcopy(env, {id(part): part for part in parts if part is not None})
