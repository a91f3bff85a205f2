"""GEM environments (gem-llm 0.1.0), made safe for a concurrent, reproducible run.

GEM seeds and draws from the global generators. Every call into an environment takes a lock and
seeds them from the episode's own stream, so that episodes do not depend on each other. Tools are
called without the lock: they draw nothing, and take long.
"""

from __future__ import annotations

import copy
import io
import logging
import pickle
import random
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from attrs import define, field

from rlc.catalog import wrapper_traits
from rlc.catalog.packages import too_new
from rlc.chat import ContractError, EnvError, Observation
from rlc.data import SubprocessPool
from rlc.envs.base import Episode
from rlc.envs.gem.math import math_grader
from rlc.envs.gem.tools import Call, stop_tools, tool_metrics, with_tools
from rlc.envs.workers.threads import GLOBAL_RNG
from rlc.errors import first_line
from rlc.seeds import derive_seed

# Arguments of GEM's ObservationWrapper for the wrappers of a recipe.
OBSERVATIONS = {
    "concat": {"include_action": False, "include_chat_template": False},
    "concat_with_action": {"include_action": True, "include_chat_template": False},
    "concat_chat": {"include_action": True, "include_chat_template": True},
    "concat_chat_on_reset": {
        "include_action": True,
        "include_chat_template": False,
        "apply_chat_template_on_reset": True,
    },
}

# Attributes of environments that are the same for all copies.
_SHARED = ("ds", "dataset", "dataset_iter", "mp_pool", "thread_pool_executer")
_REASONING = "gem.envs.reasoning_gym"
# Their steps draw no random numbers, and grading takes a while: they run side by side.
_NEVER_DRAW = ("gem.envs.math_env", "gem.envs.qa_env", "gem.envs.code_env")


class GemSource:
    """A :class:`rlc.envs.base.EnvSource` of one GEM environment."""

    def __init__(
        self,
        env_id: str,
        args: dict[str, Any],
        observation: str | None = None,
        tokenizer: Any = None,
        tools: Sequence[Call] = (),
    ) -> None:
        """``observation``: the wrapper that keeps the history. The first of ``tools`` is innermost.
        Raise EnvError if the environment cannot be made."""
        chat = observation is not None and wrapper_traits(observation).chat_template
        if chat and not getattr(tokenizer, "chat_template", None):
            raise EnvError(f"`{observation}()` needs a chat template, and the model has none")
        self._id = env_id
        self._args = args
        self._observation = observation
        self._tokenizer = tokenizer if chat else None
        self._tools = tuple(tools)
        self._grader = math_grader()
        try:
            self._prototype = _prototype(env_id, pickle.dumps(args))
        except Exception as error:
            raise EnvError(f"gem cannot make `{env_id}`: {first_line(error)}") from error

    def group(self, seed: int, size: int) -> list[Episode]:
        """Reset one copy and return copies of it: one state, one prompt."""
        env = with_tools(_IsolatedEnv(self._clone(self._prototype), self._grader), self._tools)
        if self._observation is not None:
            from gem.wrappers.observation_wrapper import ObservationWrapper

            settings = OBSERVATIONS[self._observation]
            env = ObservationWrapper(env, tokenizer=self._tokenizer, **settings)
        text, info = env.reset(seed=derive_seed(seed, "reset") % 2**32)
        base = env.unwrapped
        data = getattr(base, "data", None)
        answer = data.get("answer") if isinstance(data, dict) else getattr(base, "answer", None)
        fields = {"answer": answer} if isinstance(answer, str) else None
        first = Observation(self.text(text, info), fields=fields or {})
        episodes = list[Episode]()
        for number in range(size):
            copied = inner = self._clone(env)
            while not isinstance(inner, _IsolatedEnv):
                inner = inner.env
            inner.seed = derive_seed(seed, "member", number)
            episodes.append(_GemEpisode(self, first, copied, inner))
        return episodes

    def close(self) -> None:
        self._grader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        args = (self._id, self._args, self._observation, self._tokenizer, self._tools)
        return _made_once, args

    @property
    def shared(self) -> dict[str, Any]:
        """Common parts of episodes, which are only read, or never used: resets have a seed."""
        base = self._prototype.unwrapped
        parts = {name: getattr(base, name, None) for name in _SHARED}
        parts |= {"tokenizer": self._tokenizer, "grader": self._grader}
        return {name: part for name, part in parts.items() if part is not None}

    def _clone(self, env: Any) -> Any:
        return copy.deepcopy(env, {id(part): part for part in self.shared.values()})

    def text(self, text: Any, info: dict[str, Any]) -> str:
        """Add the environment's prefix and suffix, as GEM's wrapper does: some show boards
        there."""
        if not isinstance(text, str):
            raise ContractError(f"`{self._id}` gave a {type(text).__name__} where text is due")
        if self._observation is not None:
            return text
        body = text if not text or text.endswith("\n") else text + "\n"
        return str(info.get("prefix", "")) + body + str(info.get("suffix", ""))


@define(eq=False)
class _IsolatedEnv:
    """A bare environment whose calls hold the lock of the global generators, and seed them from the
    episode's stream ``seed``; each step has a part of its own."""

    env: Any
    grader: SubprocessPool
    seed: int = 0
    _turn: int = field(default=0, init=False)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        with GLOBAL_RNG.held_by(self):
            found: tuple[Any, dict[str, Any]] = self.env.reset(seed=seed)
            return found

    def step(self, action: str) -> Any:
        import numpy as np

        self._turn += 1
        module = type(self.unwrapped).__module__
        if module in _NEVER_DRAW:
            return self._graded(action)
        with GLOBAL_RNG.held_by(self):
            seed = derive_seed(self.seed, "turn", self._turn)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            try:
                return self.env.step(action)
            except Exception:
                # Some scorers of reasoning-gym raise for an answer that is not in their form. It is
                # just wrong: if the episode failed, a model would not learn to keep to the form.
                if module != _REASONING:
                    raise
                return "", 0.0, True, True, {"unreadable": True}

    def _graded(self, action: str) -> Any:
        """Step an environment with data. GEM grades math with a signal, which only the main thread
        can set, and raises UnboundLocalError for replies without an answer to ``qa:`` or
        ``logic:``."""
        env, correct = self.unwrapped, None
        if getattr(env, "use_mp", None) is False:
            correct = self.grader.ask(action, env.answer) is True
        elif hasattr(env, "extractor") and env.extractor(action) is None:
            correct = False
        if correct is None:
            return self.env.step(action)
        return "", float(correct), True, True, {"correct": correct}


@define(eq=False)
class _GemEpisode:
    source: GemSource
    first: Observation
    _env: Any
    _inner: _IsolatedEnv

    def __reduce__(self) -> tuple[Any, ...]:
        names, state = {id(part): name for name, part in self.source.shared.items()}, io.BytesIO()

        class Pickler(pickle.Pickler):
            def persistent_id(self, part: Any) -> str | None:
                return names.get(id(part))

        Pickler(state, protocol=pickle.HIGHEST_PROTOCOL).dump((self._env, self._inner))
        return _unpickled, (self.source, self.first, state.getvalue())

    def step(self, action: str) -> Observation:
        text, reward, terminated, truncated, info = self._env.step(action)
        metrics = tool_metrics(self._env)
        metrics |= {name: float(info[name]) for name in ("correct", "unreadable") if name in info}
        return Observation(
            self.source.text(text, info),
            reward,
            done=bool(terminated or truncated),
            metrics=metrics,
            truncated=bool(truncated and not terminated),
        )

    def close(self) -> None:
        """End its tools' programs, and free the lock, which a step that hangs still holds."""
        stop_tools(self._env)
        GLOBAL_RNG.release(self._inner)


def _unpickled(source: GemSource, first: Observation, state: bytes) -> _GemEpisode:
    shared = source.shared

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> Any:
            return shared[name]

    return _GemEpisode(source, first, *Unpickler(io.BytesIO(state)).load())


@lru_cache(maxsize=16)
def _prototype(env_id: str, pickled_args: bytes) -> Any:
    """Return an environment that is copied, and never played: one for all sources, since a run
    opens one for each evaluation, and some environments read a data set or words when made."""
    random.seed(0)
    return import_gem().make(env_id, **pickle.loads(pickled_args))


_MADE: dict[str, GemSource] = {}  # in another process, which makes each source once


def _made_once(
    env_id: str, args: dict[str, Any], observation: str | None, tokenizer: Any, tools: Any
) -> GemSource:
    name = repr((env_id, sorted(args.items()), observation, tools))
    if name not in _MADE:
        _MADE[name] = GemSource(env_id, args, observation, tokenizer, tools)
    return _MADE[name]


@cache
def import_gem() -> Any:
    """Import gem without letting it set up the root logger for the whole program."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        import gem
    except ImportError as error:
        advice = too_new("gem-llm") or "pip install 'rlc[gem]'"
        raise EnvError(f"GEM is not installed: {advice}") from error
    root.handlers[:] = handlers
    root.setLevel(level)
    return gem
