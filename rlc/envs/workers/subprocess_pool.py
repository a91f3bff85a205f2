"""Questions to processes of our own, for what must not run beside anything else: code that can only
be stopped by a signal in the main thread, or not at all, deep inside a C library.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import threading
from typing import Any

from attrs import define, field

from rlc.envs.base import EnvError

_START = 120.0  # seconds until a process must have started: it imports its libraries
READY = "ready"  # the first line that a process writes


@define(eq=False)
class SubprocessPool:
    """Up to ``most`` processes of ``python -m module``, which answers each line of JSON with one.

    Started as they are needed, from any thread. A process that has no answer within ``patience``
    seconds is replaced. Without :meth:`close` they end when the
    program does, whose end closes what they read.
    """

    module: str
    patience: float
    most: int
    _idle: list[subprocess.Popen[str]] = field(factory=list, init=False)
    _places: threading.BoundedSemaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.most)

    def ask(self, question: Any) -> Any:
        """What a process answers; None where it does not in time, or dies of the question. Blocks.
        Raises EnvError where none starts."""
        with self._places:
            process = self._idle.pop() if self._idle else self._started()
            answer = self._answer(process, question)
            if answer is None:
                _end(process)
                return None
            self._idle.append(process)
            return json.loads(answer)

    def close(self) -> None:
        """End those that have nothing to do."""
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
            start_new_session=True,  # Ctrl-C is the program's affair
        )
        if _line(process, _START) != READY:
            _end(process)
            raise EnvError(f"a process of {self.module} does not start")
        return process

    def _answer(self, process: subprocess.Popen[str], question: Any) -> str | None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return _line(process, self.patience)


def _line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """The next line that it writes; None if it does not. It writes one for each it reads, so none
    is ever left in the buffer."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() or None if ready else None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # a question that it had not read yet
            if pipe is not None:
                pipe.close()
