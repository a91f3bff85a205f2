"""The data sets of tinker-cookbook that a recipe names: builders, data sets and environments are
called with what the recipe decides and gives, and their groups numbered."""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from rlc.catalog import COOKBOOK_BATCHES, COOKBOOK_GROUP
from rlc.chat import EnvError
from rlc.data import (
    Code,
    DataError,
    DataRow,
    at_place,
    called,
    explained,
    lacking,
    load_attribute,
    parameter_names,
    require_fits,
    signature_of,
)


def made_builder(
    code: Code,
    tokenizer: Any,
    renderer: str,
    values: Callable[[str], Mapping[str, Any]],
    rows: Sequence[DataRow] | None = None,
) -> Any:
    """Call what ``code`` names with its own arguments, the ``values`` that the recipe decides for
    the name of the model, and what it gives to those that need it. A class of environments makes a
    data set of ``rows``. Raise DataError if it cannot be found or called."""
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.rl.types import Env
    from tinker_cookbook.tokenizer_utils import register_tokenizer

    target, builder = code.target, load_attribute(code.target)
    require_fits(code, signature_of(builder))
    name = str(getattr(tokenizer, "name_or_path", "") or "the-model-of-the-run")
    # A copy for other threads: two cannot use one tokenizer at the same time.
    own_tokenizer = SharedTokenizer(copy.deepcopy(tokenizer))
    register_tokenizer(name, lambda: own_tokenizer)
    names, decided = parameter_names(builder), values(name)
    args = {**code.args, **{one: value for one, value in decided.items() if one in names}}
    # Groups are taken one by one, so that a batch of one leaves none out at the end.
    offers: Mapping[str, Callable[[], Any]] = {
        "renderer": lambda: get_renderer(renderer, own_tokenizer),
        "tokenizer": lambda: own_tokenizer,
        **dict.fromkeys(COOKBOOK_BATCHES, lambda: 1),
    }
    needed = lacking(signature_of(builder), args)
    args |= {one: offers[one]() for one in needed if one in code.offered}
    if isinstance(builder, type) and issubclass(builder, Env):
        size = decided[COOKBOOK_GROUP[0]]
        return EnvSet.of_rows(target, builder, args, rows, size)
    if rows is not None:
        what = f"`rows` are the arguments of a class of environments, and `{target}` is none"
        raise EnvError(what, "leave `rows` out")
    return called(target, builder, args)


@frozen
class EnvSet:
    """The data set of a class of environments, each a group: ``problems`` are their arguments."""

    target: str
    env: Any
    problems: Sequence[Mapping[str, Any]]
    size: int

    @classmethod
    def of_rows(
        cls,
        target: str,
        env: Any,
        args: Mapping[str, Any],
        rows: Sequence[DataRow] | None,
        size: int,
    ) -> EnvSet:
        """Return one problem for each row, whose fields are the arguments of their names; or one
        in all. Raise DataError for a row that lacks an argument."""
        names, problems = parameter_names(env), []
        for row in rows or ():
            fields = {name: value for name, value in row.fields.items() if name in names}
            problems.append({**fields, **args})
            with at_place(row.place):
                if missing := lacking(signature_of(env), problems[-1]):
                    there = ", ".join(f"`{name}`" for name in row.fields)
                    what = f"`{target}` needs `{missing[0]}`, and the row has {there}"
                    raise DataError(what)
        return cls(target, env, problems if rows is not None else [args], size)

    def __len__(self) -> int:
        return len(self.problems)

    def get_batch(self, index: int) -> list[Any]:
        from tinker_cookbook.rl.problem_env import ProblemGroupBuilder

        make = partial(called, self.target, self.env, self.problems[index])
        return [ProblemGroupBuilder(make, self.size)]


async def built(target: str, made: Any, split: str) -> Any:
    """Return a set of what a recipe names: what a builder makes, or a data set as it is. Raise
    EnvError if that fails, or it has no such set."""
    try:
        if not (hasattr(made, "get_batch") or isinstance(made, tuple)):
            made = await (made if inspect.isawaitable(made) else made())
    except Exception as error:
        raise EnvError(f"`{target}` failed to build its data: {explained(error)}") from error
    return chosen_set(target, made, split)


def chosen_set(target: str, made: Any, split: str) -> Any:
    """Return the training or the test set of what was made. Raise EnvError if it has none."""
    if hasattr(made, "get_batch"):
        made = (made, None)
    if not isinstance(made, tuple) or len(made) != 2:
        raise EnvError(f"`{target}` gave a {type(made).__name__}, not a training and a test set")
    data = made[0] if split == "train" else made[1]
    if data is None:
        raise EnvError(f"`{target}` has no {split} set")
    return data


_KEPT = 4  # batches of which some groups have not been used yet


class Batches:
    """Task *n* is the *n*-th group of the data set's batches; after the last, the next epoch."""

    def __init__(self, target: str, data: Any) -> None:
        """Raise EnvError if there are no groups, or more in the last batch than in the first."""
        self._target = target
        self._data = data
        self._left: dict[tuple[int, int], dict[int, Any]] = {}
        try:
            batches = len(data)
        except Exception as error:
            what = f"the data set of `{target}` has no length: {explained(error)}"
            raise EnvError(what) from error
        if batches < 1:
            raise EnvError(f"the data set of `{target}` has no batches")
        self._size = len(self._batch(0))
        last = len(self._batch(batches - 1))
        self._batches = batches
        if not 0 < last <= self._size:
            what = f"the first batch of `{target}` has {self._size} groups, and the last has {last}"
            raise EnvError(what)
        self.count = self._size * (batches - 1) + last

    def group(self, number: int) -> Any:
        """Return a fresh builder of a group: one that was played may be used up."""
        epoch, index = divmod(number, self.count)
        batch, offset = divmod(index, self._size)
        left = self._left.pop((epoch, batch), {})
        if offset not in left:
            left = dict(enumerate(self._batch(batch)))
        if offset not in left:
            raise EnvError(
                f"batch {batch} of `{self._target}` has {len(left)} groups where {self._size} "
                "were counted: `get_batch` must give the same for the same index"
            )
        builder = left.pop(offset)
        if left:
            self._left[epoch, batch] = left
        while len(self._left) > _KEPT:
            del self._left[next(iter(self._left))]
        return builder

    def _batch(self, index: int) -> list[Any]:
        try:
            return list(self._data.get_batch(index))
        except Exception as error:
            what = f"`get_batch({index})` of `{self._target}` failed: {explained(error)}"
            raise EnvError(what) from error


class SharedTokenizer:
    """Any tokenizer, used by one thread at a time: in the threads of the cookbook's `MessageEnv` a
    fast one of transformers fails with "Already borrowed"."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up when the object is copied
            raise AttributeError(name)
        value = getattr(self._tokenizer, name)
        if not callable(value):
            return value

        @functools.wraps(value)
        def alone(*args: Any, **settings: Any) -> Any:
            with self._lock:
                return value(*args, **settings)

        return alone

    def __call__(self, *args: Any, **settings: Any) -> Any:
        with self._lock:
            return self._tokenizer(*args, **settings)

    def __len__(self) -> int:
        return len(self._tokenizer)
