"""GEM environments as a run shows them: the text of an observation, and the reward."""

from __future__ import annotations

import copy
from typing import Any

from attrs import frozen

from rlc.envs.gem.source import import_gem


@frozen
class Seen:
    """An observation with the reward that came with it."""

    text: str
    reward: float
    done: bool


class Game:
    """One GEM environment. Its randomness is global and is reseeded by each ``reset``."""

    def __init__(self, env_id: str, concat: bool = False, **args: Any) -> None:
        """``concat`` shows the whole history of observations each turn (GEM's own wrapper)."""
        self._env = import_gem().make(env_id, **args)
        self._concat = concat
        if concat:
            from gem.wrappers.observation_wrapper import ObservationWrapper

            self._env = ObservationWrapper(
                self._env, include_action=False, include_chat_template=False
            )

    def another(self) -> Game:
        """Return a copy to play beside this one; a question pool is read-only and shared."""
        pool = getattr(self._env.unwrapped, "ds", None)
        return copy.deepcopy(self, {id(pool): pool})

    def reset(self, seed: int) -> str:
        """Start the episode that ``seed`` picks, and return the opening observation."""
        return self._text(*self._env.reset(seed=seed))

    def step(self, action: str) -> Seen:
        """Play one action."""
        text, reward, terminated, truncated, info = self._env.step(action)
        return Seen(self._text(text, info), float(reward), bool(terminated or truncated))

    def _text(self, text: str, info: dict[str, Any]) -> str:
        """Some games show their board only in the prefix or suffix; the wrapper adds both."""
        if self._concat:
            return text
        body = text if not text or text.endswith("\n") else text + "\n"
        return str(info.get("prefix", "")) + body + str(info.get("suffix", ""))
