"""GEM environments (gem-llm 0.1.0), made safe for a concurrent, reproducible run.

GEM seeds and draws from the *global* ``random`` and ``numpy.random``. Every call into an
environment here first seeds both from the episode's own stream, and has them to itself until it is
done, so what an episode does never depends on which others run beside it. Tools are called outside
of that: they draw nothing, and take long.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from attrs import define, field

from rlc.envs.base import ContractError, EnvError, Episode, Observation
from rlc.envs.gem.global_rng import GLOBAL_RNG
from rlc.envs.gem.math import MathGrader
from rlc.envs.gem.pickling import dump_without, load_with
from rlc.envs.gem.tools import Call, stop_tools, tool_metrics, with_tools
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

# Attributes of environments that are the same for all copies.
_SHARED = ("ds", "dataset", "dataset_iter", "mp_pool", "thread_pool_executer")
_MEASURED = ("correct", "unreadable")  # of what a step says beside its reward
_REASONING = "gem.envs.reasoning_gym"
# Their steps draw nothing, and grading takes a while: they run side by side.
_NEVER_DRAW = ("gem.envs.math_env", "gem.envs.qa_env", "gem.envs.code_env")


class GemSource:
    """One GEM environment with its keyword arguments, tools and GEM's own observation wrapper."""

    def __init__(
        self,
        env_id: str,
        args: dict[str, Any],
        observation: str | None = None,
        tokenizer: Any = None,
        tools: Sequence[Call] = (),
    ) -> None:
        """``observation`` is one of :data:`OBSERVATIONS`; those that make a chat take the
        ``tokenizer``'s chat template. ``tools``: the first is innermost. Raises EnvError if the
        environment cannot be made."""
        chat = "chat" in (observation or "")
        if chat and not getattr(tokenizer, "chat_template", None):
            raise EnvError(f"`{observation}()` needs a chat template, and the model has none")
        self._id = env_id
        self._args = args
        self._observation = observation
        self._tokenizer = tokenizer if chat else None
        self._tools = tuple(tools)
        self._grader = MathGrader()
        random.seed(0)
        try:
            self._prototype = _gem().make(env_id, **args)
        except Exception as error:
            raise EnvError(f"gem cannot make `{env_id}`: {_first_line(error)}") from error

    def group(self, seed: int, size: int) -> list[Episode]:
        """Reset one copy and hand out copies of it: one state, one prompt."""
        inner = _Isolated(self._clone(self._prototype), self._grader)
        env = self._observed(with_tools(inner, self._tools))
        text, info = env.reset(seed=derive_seed(seed, "reset") % 2**32)
        first = Observation(self.text(text, info))
        return [self._episode(env, first, derive_seed(seed, "member", n)) for n in range(size)]

    def close(self) -> None:
        """End the grader, where there is one. Safe to call twice."""
        self._grader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is made anew, once."""
        args = (self._id, self._args, self._observation, self._tokenizer, self._tools)
        return _made_once, args

    @property
    def shared(self) -> dict[str, Any]:
        """What its episodes have in common, by name: it is only read, or, as the iterators, never
        used, since every reset has a seed."""
        base = self._prototype.unwrapped
        parts = {name: getattr(base, name, None) for name in _SHARED}
        parts |= {"tokenizer": self._tokenizer, "grader": self._grader}
        return {name: part for name, part in parts.items() if part is not None}

    def _episode(self, env: Any, first: Observation, seed: int) -> _GemEpisode:
        copied = self._clone(env)
        inner = copied
        while not isinstance(inner, _Isolated):
            inner = inner.env
        inner.seed = seed
        return _GemEpisode(self, first, copied, inner)

    def _observed(self, env: Any) -> Any:
        if self._observation is None:
            return env
        from gem.wrappers.observation_wrapper import ObservationWrapper

        settings = _OBSERVATIONS[self._observation]
        return ObservationWrapper(env, tokenizer=self._tokenizer, **settings)

    def _clone(self, env: Any) -> Any:
        """Deep copy of an environment, but for what is shared."""
        return copy.deepcopy(env, {id(part): part for part in self.shared.values()})

    def text(self, text: Any, info: dict[str, Any]) -> str:
        """The observation with the environment's own prefix and suffix.

        Several games show their board only in the suffix. GEM's wrapper adds both itself.
        """
        if not isinstance(text, str):
            raise ContractError(f"`{self._id}` gave a {type(text).__name__} where text is due")
        if self._observation is not None:
            return text
        body = text if not text or text.endswith("\n") else text + "\n"
        return str(info.get("prefix", "")) + body + str(info.get("suffix", ""))


@define(eq=False)
class _Isolated:
    """A bare environment with the global generators to itself, and seeded, in every call.

    ``seed`` names the stream of the episode; each step has a part of its own.
    """

    env: Any
    grader: MathGrader
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
        self._turn += 1
        if type(self.unwrapped).__module__ in _NEVER_DRAW:
            return self._graded(action)
        with GLOBAL_RNG.held_by(self):
            _seed_globals(derive_seed(self.seed, "turn", self._turn))
            return self._scored(action)

    def _scored(self, action: str) -> Any:
        """Some scorers of reasoning-gym raise for an answer that is not in their form, which makes
        it no less wrong; were the episode to fail, a model would not learn to keep to the form."""
        try:
            return self.env.step(action)
        except Exception:
            if type(self.unwrapped).__module__ != _REASONING:
                raise
            return "", 0.0, True, True, {"unreadable": True}

    def _graded(self, action: str) -> Any:
        """The step of an environment with data, without the two ways in which GEM's fails: math is
        graded with a signal that only the main thread can set, and a reply in which no answer is
        found, to a question of a ``qa:`` or ``logic:`` one, raises UnboundLocalError."""
        env, correct = self.unwrapped, None
        if getattr(env, "use_mp", None) is False:
            correct = self.grader(action, env.answer)
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
    _inner: _Isolated

    def __reduce__(self) -> tuple[Any, ...]:
        state = dump_without((self._env, self._inner), self.source.shared)
        return _unpacked, (self.source, self.first, state)

    def step(self, action: str) -> Observation:
        text, reward, terminated, truncated, info = self._env.step(action)
        metrics = tool_metrics(self._env)
        metrics |= {name: float(info[name]) for name in _MEASURED if name in info}
        return Observation(
            self.source.text(text, info),
            reward,
            done=bool(terminated or truncated),
            metrics=metrics,
            truncated=bool(truncated and not terminated),
        )

    def close(self) -> None:
        """End what its tools run. A step that hangs no longer holds the others up."""
        stop_tools(self._env)
        GLOBAL_RNG.release(self._inner)


def _unpacked(source: GemSource, first: Observation, state: bytes) -> _GemEpisode:
    return _GemEpisode(source, first, *load_with(state, source.shared))


_MADE: dict[str, GemSource] = {}  # in another process: those that came here


def _made_once(
    env_id: str, args: dict[str, Any], observation: str | None, tokenizer: Any, tools: Any
) -> GemSource:
    name = repr((env_id, sorted(args.items()), observation, tools))
    if name not in _MADE:
        _MADE[name] = GemSource(env_id, args, observation, tokenizer, tools)
    return _MADE[name]


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
