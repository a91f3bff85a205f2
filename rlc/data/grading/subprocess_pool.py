"""Helper processes that answer questions, for code that must not run in this one: code that only a
signal in the main thread can stop, or that nothing can stop, deep inside a C library.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rlc.data.errors import DataError
from rlc.records import define, field

_START = 120.0  # seconds within which a process must have started: it imports its libraries
_READY = "ready"  # the first line that a process writes


def serve(answer: Callable[..., Any]) -> None:
    """In a process of the pool: answer each line of standard input, a JSON list of arguments."""
    print(_READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)


@define(eq=False)
class SubprocessPool:
    """Up to ``most`` processes of ``python -m module``, which calls :func:`serve`, started as
    needed, from any thread. One that does not answer within ``patience`` seconds is replaced. They
    end with :meth:`close`, or with the program, which closes their standard input."""

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
    """Return the next line; None if it is late. There is one for each that a process reads, so the
    buffer never holds another."""
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
