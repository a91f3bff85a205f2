"""Equality of mathematical answers, by math-verify, in a process of its own.

math-verify limits its time with a signal, which works in the main thread only, and SymPy may take
hours for what math-verify asks of it. `python -m rlc.data.grading.math_equivalence` reads [answer,
gold], and writes an Equivalence.
"""

from __future__ import annotations

import atexit
import importlib
import os
from functools import cache, lru_cache
from typing import Any

from rlc.data.grading.subprocess_pool import SubprocessPool, serve
from rlc.records import asdict, frozen

SECONDS = 5  # that math-verify may take for each of its three steps
_PATIENCE = 3.0 * SECONDS + 5.0
_MOST_PROCESSES = 4


@frozen
class Equivalence:
    """Which of the two could be read, and whether they are equal."""

    answer: bool
    gold: bool
    same: bool


def compare(answer: str, gold: str) -> Equivalence | None:
    """Compare two answers; None if too slow. Blocks. Raise DataError without math-verify."""
    found = _pool().ask(answer, gold)
    return None if found is None else Equivalence(**found)


@cache
def _pool() -> SubprocessPool:
    count = min(_MOST_PROCESSES, os.cpu_count() or 1)
    pool = SubprocessPool("rlc.data.grading.math_equivalence", _PATIENCE, count)
    atexit.register(pool.close)
    return pool


def main() -> None:
    math_verify = importlib.import_module("math_verify")

    @lru_cache(maxsize=4_096)
    def parsed(text: str) -> tuple[Any, ...]:
        return tuple(math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=SECONDS))

    def equivalence(answer: str, gold: str) -> dict[str, bool]:
        meant = parsed(answer)
        expected = parsed(gold) if meant else ()
        same = bool(meant and expected) and math_verify.verify(
            list(expected), list(meant), timeout_seconds=SECONDS
        )
        return asdict(Equivalence(bool(meant), bool(expected), bool(same)))

    serve(equivalence)


if __name__ == "__main__":
    main()
