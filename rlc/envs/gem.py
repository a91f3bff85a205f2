"""GEM environments (gem-llm 0.1.0), made safe for a concurrent, reproducible run.

GEM seeds and draws from the *global* ``random`` and ``numpy.random``. Every call into an
environment here seeds both from the episode's own stream first, so what an episode does never
depends on which others run beside it.
"""

from __future__ import annotations

import copy
import logging
import math
import random
from functools import cache
from typing import Any

from rlc.envs.base import EnvError, Episode, Observation
from rlc.envs.seeds import derive_seed

# GEM's observation wrapper, by the names of the language.
_OBSERVATIONS = {
    "concat": {"include_action": False, "include_chat_template": False},
    "concat_with_action": {"include_action": True, "include_chat_template": False},
    "concat_chat": {"include_action": True, "include_chat_template": True},
    "concat_chat_on_reset": {
        "include_action": True,
        "include_chat_template": False,
        "apply_chat_template_on_reset": True,
    },
}
OBSERVATIONS = tuple(_OBSERVATIONS)


class GemSource:
    """One GEM environment with its keyword arguments and GEM's own observation wrapper."""

    def __init__(
        self,
        env_id: str,
        args: dict[str, Any],
        observation: str | None = None,
        tokenizer: Any = None,
    ) -> None:
        """``observation`` is one of :data:`OBSERVATIONS`; those that make a chat take the
        ``tokenizer``'s chat template. Raises EnvError if the environment cannot be made."""
        self._id = env_id
        self._observation = observation
        self._tokenizer = tokenizer
        if "chat" in (observation or "") and not getattr(tokenizer, "chat_template", None):
            raise EnvError(f"`{observation}()` needs a chat template, and the model has none")
        random.seed(0)
        try:
            self._prototype = _gem().make(env_id, **args)
        except Exception as error:
            raise EnvError(f"gem cannot make `{env_id}`: {_first_line(error)}") from error

    def group(self, seed: int, size: int) -> list[Episode]:
        """Reset one copy and hand out copies of it: one state, one prompt."""
        env = self._wrap(self._clone(self._prototype))
        text, info = env.reset(seed=derive_seed(seed, "reset") % 2**32)
        first = Observation(self._text(text, info))
        return [
            _GemEpisode(self._clone(env), first, derive_seed(seed, "member", member), self._text)
            for member in range(size)
        ]

    def _wrap(self, env: Any) -> Any:
        if self._observation is None:
            return env
        from gem.wrappers.observation_wrapper import ObservationWrapper

        settings = _OBSERVATIONS[self._observation]
        return ObservationWrapper(env, tokenizer=self._tokenizer, **settings)

    def _clone(self, env: Any) -> Any:
        """Deep copy of an environment. What is only read is shared: the question pool of a
        ``rg:`` one, and the tokenizer."""
        shared = (getattr(env.unwrapped, "ds", None), self._tokenizer)
        return copy.deepcopy(env, {id(part): part for part in shared if part is not None})

    def _text(self, text: Any, info: dict[str, Any]) -> str:
        """The observation with the environment's own prefix and suffix.

        Several games show their board only in the suffix. GEM's wrapper adds both itself.
        """
        if not isinstance(text, str):
            raise EnvError(f"`{self._id}` gave a {type(text).__name__} where text is due")
        if self._observation is not None:
            return text
        body = text if not text or text.endswith("\n") else text + "\n"
        return str(info.get("prefix", "")) + body + str(info.get("suffix", ""))


class _GemEpisode:
    def __init__(self, env: Any, first: Observation, seed: int, text: Any) -> None:
        self.first = first
        self._env = env
        self._seed = seed
        self._text = text
        self._turn = 0

    def step(self, action: str) -> Observation:
        self._turn += 1
        _seed_globals(derive_seed(self._seed, "turn", self._turn))
        text, reward, terminated, truncated, info = self._env.step(action)
        value = float(reward)
        if not math.isfinite(value):
            raise EnvError(f"reward {value} is not a finite number")
        return Observation(self._text(text, info), value, bool(terminated or truncated))


@cache
def _gem() -> Any:
    """Import gem without letting it set up the root logger for the whole program."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        import gem
    except ImportError as error:
        raise EnvError("GEM is not installed: pip install 'rlc[gem]'") from error
    root.handlers[:] = handlers
    root.setLevel(level)
    return gem


def _seed_globals(seed: int) -> None:
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
