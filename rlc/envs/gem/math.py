"""Grading of GEM's math environments, off the main thread.

GEM limits the time of its grader with a signal, which works in the main thread only, and
environments are played in others. So the same grader runs in a process of its own, which also ends
it where the signal cannot: inside a long calculation of a C library.

    python -m rlc.envs.gem.math     reads [reply, answer] and writes true or false, in JSON lines
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import threading
from typing import Any, cast

from attrs import define, field

from rlc.envs.base import EnvError

SECONDS = 1  # GEM's own limit
_PATIENCE = 10.0  # seconds until a grader that does not answer is replaced
_START = 120.0  # seconds until it must have started: it imports the library


@define(eq=False)
class MathGrader:
    """Whether replies are right. One at a time, from any thread; started with the first."""

    patience: float = _PATIENCE
    _process: subprocess.Popen[str] | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __deepcopy__(self, memo: Any) -> MathGrader:
        return self  # the copies of an environment share it

    def __reduce__(self) -> tuple[Any, ...]:
        return MathGrader, (self.patience,)  # in another process it is another one

    def __call__(self, reply: str, answer: Any) -> bool:
        """A reply that cannot be graded in time is wrong, as in GEM."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            process.stdin.write(json.dumps([reply, answer]) + "\n")
            process.stdin.flush()
            correct = self._line(process, self.patience)
            if correct is None:
                self._end()
        return correct == "true"

    def close(self) -> None:
        """End the process. Safe to call twice."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[str]:
        """The running process. Raises EnvError if it does not start."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
            if self._line(self._process, _START) != "ready":
                self._end()
                raise EnvError("the grader of GEM's math environments does not start")
        return self._process

    def _line(self, process: subprocess.Popen[str], seconds: float) -> str | None:
        """The next line that it writes; None if it does not. It writes one for each it reads, so
        none is ever left in the buffer."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        return process.stdout.readline().strip() or None if ready else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    cast(Any, pipe).close()


def serve() -> None:
    """Grade what comes in, line by line, until there is no more."""
    from gem.envs.math_env import MathEnv
    from gem.utils.math_grader import run_with_timeout_signal

    print("ready", flush=True)
    for line in sys.stdin:
        correct = run_with_timeout_signal(
            MathEnv.check_correct, args=tuple(json.loads(line)), timeout_seconds=SECONDS
        )
        print(json.dumps(bool(correct)), flush=True)


if __name__ == "__main__":
    serve()
