"""Functions of the user's own that a run calls with arrays or records, and what they return.

They give the advantages of a batch, choose among the episodes of a task, or weigh tasks. Each is
called with those of :data:`SEES` that it names, and with its ``args``; what it returns is looked at
before anything is made of it. ``rlc check --import`` tries each on a :class:`SampleBatch`.
"""

from __future__ import annotations

import json
import reprlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlc.data.calls import Code
from rlc.data.code import (
    explained,
    load_attribute,
    parameter_names,
    require_fits,
    signature_of,
)
from rlc.data.errors import DataError
from rlc.data.functions.samples import Bools, Floats, PlayedEpisode, SampleBatch
from rlc.records import field, frozen

State: TypeAlias = dict[str, Any]

MOST_STATE = 100_000  # characters of a state as JSON: each step journals it


class FunctionError(DataError):
    """A function of the user's own that failed, or returned something that cannot be used."""

    cause = "function"


@frozen
class CalledFunction:
    """A function of the user's own. Raise DataError if it is not found, or does not fit."""

    code: Code
    _function: Any = field(init=False, eq=False, repr=False)

    @_function.default
    def _load(self) -> Any:
        function = load_attribute(self.code.target)
        require_fits(self.code, signature_of(function))
        return function

    def called(self, given: Mapping[str, Any]) -> Any:
        """Return what it returns. Raise FunctionError if it fails."""
        names = parameter_names(self._function)
        passed = {name: value for name, value in given.items() if name in names}
        try:
            return self._function(**passed, **self.code.args)
        except (Exception, SystemExit) as error:
            failed = self.wrong(f"raised {explained(error)}")
            frames = traceback.extract_tb(error.__traceback__)[1:]  # without this one
            failed.add_note(
                "".join(["it was called so:\n", *traceback.format_list(frames)]).rstrip()
            )
            raise failed from error

    def wrong(self, what: str, hint: str | None = None) -> FunctionError:
        return FunctionError(f"`{self.code.target}` {what}", hint)

    def numbers(self, returned: Any, due: Mapping[int, str], a: str, infinite: str) -> Floats:
        """Return finite numbers, as many as there are of one of the things that are ``due``. An
        ``infinite`` one has this advice."""
        if returned is None:
            raise self.wrong("returned None: is a `return` missing?")
        try:
            found_V = np.asarray(returned, np.float64)
        except (TypeError, ValueError) as error:
            what = f"returned {reprlib.repr(returned)}, which is no array of numbers"
            raise self.wrong(what) from error
        if found_V.ndim != 1 or len(found_V) not in due:
            each = " or ".join(f"each of {n:,} {of}s, ({n},)" for n, of in due.items())
            what = f"returned an array of shape {found_V.shape}, and {a} is due for {each}"
            raise self.wrong(what)
        if not np.isfinite(found_V).all():
            at = int(np.argmin(np.isfinite(found_V)))
            what = f"returned {found_V[at]} for {due[len(found_V)]} {at}; {a} is a finite number"
            raise self.wrong(what, infinite)
        return found_V


@frozen
class AdvantageFunction(CalledFunction):
    """A function that gives the advantages of a batch."""

    def __call__(self, columns: Mapping[str, Any], state: State) -> tuple[Floats, Bools, State]:
        """Return an advantage for each turn, which episodes are kept, and the state after it."""
        returned, turns_R = self.called({**columns, "state": state}), columns["turns_R"]
        pair = isinstance(returned, tuple) and len(returned) == 2
        result, kept = returned if pair else (returned, np.ones(len(turns_R), np.bool_))
        due = {int(turns_R.sum()): "turn", len(turns_R): "episode"}
        advice = "is something divided by a spread, or by a number, that is 0?"
        found_V, kept_R = self.numbers(result, due, "an advantage", advice), np.asarray(kept)
        if kept_R.dtype != np.bool_ or kept_R.shape != turns_R.shape:
            what = (
                f"returned an array of {kept_R.dtype} of shape {kept_R.shape} behind the "
                f"advantages, and which episodes are kept is one bool for each, ({len(turns_R)},)"
            )
            raise self.wrong(what)
        each = len(found_V) == len(turns_R)
        advantages_N = np.repeat(found_V, turns_R) if each else found_V.copy()
        advantages_N[~np.repeat(kept_R, turns_R)] = 0.0
        return advantages_N, kept_R, self._journalled(state)

    def _journalled(self, state: State) -> State:
        """Return a state as it is read from the journal."""
        advice = "keep numbers, texts, lists and dicts whose keys are texts"
        try:
            text = json.dumps(_plain(state), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.wrong(f"left a `state` that no journal can hold: {error}", advice) from error
        if len(text) > MOST_STATE:
            what = f"left a `state` of {len(text):,} characters as JSON, of at most {MOST_STATE:,}"
            raise self.wrong(what, "keep sums and counts in place of what they are made of")
        found: State = json.loads(text)
        return found

    def try_on(self, batch: SampleBatch) -> None:
        """Raise DataError if it fails on a batch, or on a second one after that."""
        state: State = {}
        for step in (1, 2):
            *_, state = self(batch.columns(step), state)


@frozen
class ChoiceFunction(CalledFunction):
    """A function that chooses which episodes of a task are learnt from."""

    def __call__(self, episodes: Sequence[PlayedEpisode]) -> list[int]:
        """Return the positions of the episodes that it returns, in its order."""
        places = {id(one): at for at, one in enumerate(episodes)}
        returned = self.called({"episodes": list(episodes)})
        advice = "`return` a list of them, for example `[e for e in episodes if e.reward > 0]`"
        try:
            found = [places[id(one)] for one in returned]
        except (TypeError, KeyError) as error:
            what = f"returned {reprlib.repr(returned)}, which is no choice of its `episodes`"
            raise self.wrong(what, advice) from error
        if len(set(found)) < len(found):
            raise self.wrong("returned an episode twice", advice)
        return found

    def try_on(self, batch: SampleBatch) -> None:
        """Raise DataError if it fails on episodes that were solved or not, or on a single one."""
        for count in (batch.size, 1):
            self(batch.episodes(count))


@frozen
class WeightsFunction(CalledFunction):
    """A function that says how often each task is to be played, by what was seen of them."""

    def __call__(self, history: Mapping[str, Any]) -> Floats:
        """Return a weight for each task. Raise FunctionError if none is above 0."""
        count = len(history["played_T"])
        returned, advice = self.called(history), "what was never played has the reward nan"
        weights_T = self.numbers(returned, {count: "task"}, "a weight", advice)
        if (weights_T < 0).any():
            at = int(np.argmax(weights_T < 0))
            raise self.wrong(f"returned {weights_T[at]:g} for task {at}; no weight is below 0")
        if not weights_T.any():
            raise self.wrong("gives every task the weight 0, so that none could be played")
        return weights_T

    def try_on(self, batch: SampleBatch) -> None:
        """Raise DataError if it fails before anything was played, or with some tasks played."""
        for step in (1, 2):
            self(batch.history(step))


FUNCTIONS: Mapping[str, type[AdvantageFunction | ChoiceFunction | WeightsFunction]] = {
    "advantage": AdvantageFunction,
    "choice": ChoiceFunction,
    "weights": WeightsFunction,
}


def _plain(value: Any) -> Any:
    """Return a value of a state as JSON has it. Raise TypeError for what it has not."""
    match value:
        case np.ndarray():
            return value.tolist()
        case np.generic():
            return value.item()
        case dict():
            if odd := next((key for key in value if not isinstance(key, str)), None):
                raise TypeError(f"the key {odd!r} is no text")
            return {key: _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a value of the type {type(value).__name__}")
