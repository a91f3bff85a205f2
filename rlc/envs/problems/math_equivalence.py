"""Whether two mathematical answers mean the same, by math-verify, in a process of its own.

math-verify limits its time with a signal, which works in the main thread only, and what it asks of
SymPy may not return for hours.

    python -m rlc.envs.problems.math_equivalence     reads [answer, gold], writes a Equivalence
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
from functools import cache, lru_cache
from typing import Any

from attrs import asdict, frozen

from rlc.envs.workers.subprocess_pool import READY, SubprocessPool

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
    """Blocks. None where it takes too long. Raises EnvError where math-verify does not start."""
    found = _servers().ask([answer, gold])
    return None if found is None else Equivalence(**found)


@cache
def _servers() -> SubprocessPool:
    count = min(_MOST_PROCESSES, os.cpu_count() or 1)
    servers = SubprocessPool("rlc.envs.problems.math_equivalence", _PATIENCE, count)
    atexit.register(servers.close)
    return servers


def serve() -> None:
    """Answer what comes in, line by line, until there is no more."""
    math_verify = importlib.import_module("math_verify")

    @lru_cache(maxsize=4_096)
    def parsed(text: str) -> tuple[Any, ...]:
        return tuple(math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=SECONDS))

    def meaning(answer: str, gold: str) -> Equivalence:
        meant = parsed(answer)
        expected = parsed(gold) if meant else ()
        if not meant or not expected:
            return Equivalence(bool(meant), bool(expected), False)
        same = math_verify.verify(list(expected), list(meant), timeout_seconds=SECONDS)
        return Equivalence(True, True, bool(same))

    print(READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(meaning(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    serve()
