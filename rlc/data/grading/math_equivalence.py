"""Helper processes that answer questions, and one of them: the equality of answers by math-verify.

They run code that only a signal in the main thread can stop, as math-verify does, or that nothing
can stop: SymPy may take hours for what math-verify asks of it. `python -m
rlc.data.grading.math_equivalence` reads [answer, gold], and writes an Equivalence.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from rlc.data.errors import DataError
from rlc.records import asdict, define, field, frozen

_START = 120.0  # seconds within which a process must have started: it imports its libraries
_READY = "ready"  # the first line that a process writes


def serve(answer: Callable[..., Any]) -> None:
    """In a process of the pool: answer each line of standard input, a JSON list of arguments."""
    print(_READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)


@define(eq=False)
class SubprocessPool:
    """Up to ``most`` processes of ``python -m module``, which calls :func:`serve`. One that is
    later than ``patience`` seconds is replaced."""

    module: str
    patience: float
    most: int
    _idle: list[subprocess.Popen[str]] = field(factory=list, init=False)
    _places: threading.BoundedSemaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.most)

    def ask(self, *arguments: Any) -> Any:
        """Return an answer; None if it is late. Blocks. Raise DataError if no process starts."""
        with self._places:
            process = self._idle.pop() if self._idle else self._started()
            assert process.stdin is not None
            line = None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(arguments) + "\n")
                process.stdin.flush()
                line = _read_line(process, self.patience)
            if line is None:
                _end(process)
                return None
            self._idle.append(process)
            return json.loads(line)

    def close(self) -> None:
        while self._idle:
            _end(self._idle.pop())

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the program
        )
        if _read_line(process, _START) != _READY:
            _end(process)
            raise DataError(f"a process of {self.module} does not start")
        return process


def _read_line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """Return the next line, or None if it is late. The buffer never holds another."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() or None if ready else None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):  # a question that it had not read yet
            if pipe is not None:
                pipe.close()


@cache
def shared_pool(module: str, patience: float) -> SubprocessPool:
    """Return the one pool of a module, which is closed when this process ends."""
    pool = SubprocessPool(module, patience, min(4, os.cpu_count() or 1))
    atexit.register(pool.close)
    return pool


_SECONDS = 5  # that math-verify may take for each of its three steps
_PATIENCE = 3.0 * _SECONDS + 5.0


@frozen
class Equivalence:
    """Which of the two could be read, and whether they are equal."""

    answer: bool
    gold: bool
    same: bool


def compare(answer: str, gold: str) -> Equivalence | None:
    """Compare two answers; None if too slow. Blocks. Raise DataError without math-verify."""
    found = shared_pool("rlc.data.grading.math_equivalence", _PATIENCE).ask(answer, gold)
    return None if found is None else Equivalence(**found)


def main() -> None:
    math_verify = importlib.import_module("math_verify")

    @lru_cache(maxsize=4_096)
    def parsed(text: str) -> tuple[Any, ...]:
        return tuple(math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=_SECONDS))

    def equivalence(answer: str, gold: str) -> dict[str, bool]:
        meant = parsed(answer)
        expected = parsed(gold) if meant else ()
        same = bool(meant and expected) and math_verify.verify(
            list(expected), list(meant), timeout_seconds=_SECONDS
        )
        return asdict(Equivalence(bool(meant), bool(expected), bool(same)))

    serve(equivalence)


if __name__ == "__main__":
    main()
