"""The user's own environments: ``python("module:factory", args = {…})``.

The factory is called once for each use of the environment, with ``args`` as keyword arguments, and
returns a *source*, which makes episodes. It implements one of three methods:

``group(seed, size)``
    ``size`` episodes of the task that the seed picks, all in the same initial state. The same seed
    picks the same task (:class:`rlc.envs.base.EnvSource`).
``numbered(order, number, size)``
    ``size`` episodes of task ``number`` = 0, 1, 2 … of a list; ``order`` is the seed to shuffle it
    with (:class:`rlc.envs.base.NumberedSource`).
``async open(task, members)`` and ``async close()``
    For asynchronous environments (:class:`rlc.envs.base.AsyncSource`).

Episodes of the first two have ``first``, the opening :class:`rlc.chat.turns.Observation`, and
``step(text)``, which plays a reply and returns the next observation:

    class Guess:
        def __init__(self, secret):
            self.secret = secret
            self.first = Observation("I think of a number from 0 to 9. Which?")

        def step(self, action):
            return Observation("", reward=float(action.strip() == self.secret), done=True)

    class Guesses:
        def group(self, seed, size):
            return [Guess(str(seed % 10)) for _ in range(size)]

Their calls may block; they are made in threads, several at once, but one at a time for each
episode. Draw from a generator of your own, ``random.Random(seed)``: the global ones are shared. A
source or an episode with a method ``close()`` is closed in the end. An attribute ``count`` of a
source is its number of tasks. With ``workers(processes)`` sources and episodes are pickled.

The model sees a chat through its renderer; ``chat(instruction = …)`` adds to the first message. A
source with an attribute ``new_history``, a factory of :class:`rlc.chat.prompts.PromptBuilder`,
makes its own prompts. An episode that raises is a failed rollout, handled as the recipe's
``on_error`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.chat import EnvError
from rlc.data import called, load_attribute
from rlc.envs.base import AsyncSource, BlockingSource, EnvSource, NumberedSource


def make_source(factory: str, args: Mapping[str, Any]) -> AsyncSource | BlockingSource:
    """Call a factory. Raise EnvError if it cannot be imported, does not take the arguments, raises,
    or does not return a source."""
    source = called(factory, load_attribute(factory), args)
    is_class = isinstance(source, type)
    if is_class or not isinstance(source, AsyncSource | EnvSource | NumberedSource):
        kind = "a class" if is_class else f"a thing of the type {type(source).__name__}"
        raise EnvError(
            f"`{factory}` gave {kind}, not a source: it needs a method `group(seed, size)`, or "
            "`numbered(order, number, size)`, or `open(task, members)` with `close()`"
        )
    return source
