"""Environments of one's own: ``python("module:factory", args = {…})``.

The factory is called once for each use of the environment, with ``args`` as keyword arguments, and
gives a *source*, which makes episodes. It implements one of three methods:

``group(seed, size)``
    ``size`` episodes of the task that the seed picks, for tasks that are drawn: all in the same
    initial state, and the same whenever the seed is (:class:`rlc.envs.base.EnvSource`).
``numbered(order, number, size)``
    ``size`` episodes of task ``number`` = 0, 1, 2 …, for tasks that are gone through; ``order`` is
    the seed to shuffle them with (:class:`rlc.envs.base.NumberedSource`).
``async open(task, members)`` and ``async close()``
    For environments that await others (:class:`rlc.envs.base.AsyncSource`).

Episodes of the first two have ``first``, the opening :class:`rlc.envs.base.Observation`, and
``step(text)``, which plays what the model said and gives the next one:

    class Guess:
        def __init__(self, secret):
            self.secret = secret
            self.first = Observation("I think of a number from 0 to 9. Which?")

        def step(self, action):
            return Observation("", reward=float(action.strip() == self.secret), done=True)

    class Guesses:
        def group(self, seed, size):
            return [Guess(str(seed % 10)) for _ in range(size)]

Their calls may block; they are made in threads, several at once, each episode in one at a time.
Draw from a generator of your own, ``random.Random(seed)``: the global ones are shared. A source or
an episode with a method ``close()`` is closed in the end. A source that has so many tasks and no
more says so with an attribute ``count``. With ``workers(processes)`` sources and episodes are
pickled.

The model sees a chat through its renderer; ``chat(instruction = …)`` adds to the first message. A
source with an attribute ``new_history`` makes its prompts itself, by a
:class:`rlc.envs.history.History` for each episode.
An episode that raises is a failed rollout, which the recipe's ``on_error`` decides about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.envs.base import AsyncSource, BlockingSource, EnvError, EnvSource, NumberedSource
from rlc.envs.python.attributes import called, load_attribute


def make_source(factory: str, args: Mapping[str, Any]) -> AsyncSource | BlockingSource:
    """The source that a factory gives. Raises EnvError for one that cannot be imported, does not
    take the arguments, raises, or gives something else."""
    source = called(factory, load_attribute(factory), args)
    if isinstance(source, type) or not isinstance(source, AsyncSource | EnvSource | NumberedSource):
        kind = (
            "a class"
            if isinstance(source, type)
            else f"a thing of the type {type(source).__name__}"
        )
        raise EnvError(
            f"`{factory}` gave {kind}, not a source: it needs a method `group(seed, size)`, or "
            "`numbered(order, number, size)`, or `open(task, members)` with `close()`"
        )
    return source
