"""The checks by subject; each module has its own in ``CHECKS``, in the order they are run."""

from __future__ import annotations

from collections.abc import Callable

from rlc.service.conform.probe import Probe
from rlc.service.conform.records import Check

Run = Callable[[Probe], None]


def check(into: list[Check], name: str, *calls: str, required: bool = True) -> Callable[[Run], Run]:
    """Add a function as a check; the first line of its docstring is the promise."""

    def add(run: Run) -> Run:
        promise = (run.__doc__ or name).splitlines()[0].rstrip(".")
        into.append(Check(name, promise, calls, run, required))
        return run

    return add
