"""Code that a model writes, run in a process of its own, with limits.

Limited are seconds, memory, the size of files, how much output is read, and what the code can see
(an empty folder, no variables of the environment, no input). Not limited are the network and other
files that the user can read: to train a model that may attack its surroundings, run rlc in a
container.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from math import ceil
from typing import IO, Any

from attrs import define, field, frozen

from rlc.chat import EnvError
from rlc.envs.guarded import Guard, guarded_folder

MEMORY = 1024**3  # bytes of address space
FILE_SIZE = 16 * 1024**2  # bytes of each file that is written, the output included
LONGEST = 10_000  # characters of the output, and of the errors, that the model is shown
_AS_ARGUMENT = 3_072  # longer code is run from a file, as GEM does

# Nothing of the user's own: no keys, no settings of Python.
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}

# Limits itself, then becomes the program: no Python code runs between fork and exec, which is not
# safe beside other threads. The alarm ends it even if this process is gone.
_LAUNCH = f"""\
import os, resource, signal, sys
seconds = int(sys.argv[1])
for kind, most in (
    (resource.RLIMIT_AS, {MEMORY}),
    (resource.RLIMIT_FSIZE, {FILE_SIZE}),
    (resource.RLIMIT_CPU, seconds),
    (resource.RLIMIT_CORE, 0),
):
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
signal.alarm(seconds + 1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@frozen
class Outcome:
    """How a program ended, and what it wrote."""

    ok: bool
    output: str
    errors: str


@define(eq=False)
class Sandbox:
    """Runs programs one at a time. :meth:`stop`, from any thread, ends the one that runs."""

    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sandbox, ()  # a copy runs nothing yet

    def run(self, code: str, seconds: float) -> Outcome:
        """Run Python code to its end.

        Raise TimeoutError if it takes longer than ``seconds``, EnvError if it was stopped.
        """
        if "\0" in code:
            return Outcome(False, "", "SyntaxError: source code cannot contain null bytes")
        text = code.encode("utf-8", errors="replace")
        with (
            guarded_folder("rlc-python-") as (folder, guarded),
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            program = ["-c", os.fsdecode(text)]
            if len(text) >= _AS_ARGUMENT:
                (folder / "program.py").write_bytes(text)
                program = [str(folder / "program.py")]
            status = self._wait(program, str(folder), output, errors, seconds, guarded)
            return Outcome(status == 0, _read(output), _read(errors).strip())

    def stop(self) -> None:
        """End the running program with its children, and refuse others. Safe to call twice."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                _kill(self._running)

    def _wait(
        self,
        program: list[str],
        folder: str,
        output: IO[bytes],
        errors: IO[bytes],
        seconds: float,
        guarded: Guard,
    ) -> int:
        """Run a program and return its exit status. Its output goes to files, not to pipes: a child
        that outlives it would keep a pipe open."""
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(ceil(seconds) + 1)]
        with self._lock:
            if self._stopped:
                raise EnvError("the tool is closed")
            self._running = process = subprocess.Popen(
                [*launch, sys.executable, *program],
                cwd=folder,
                env={**_ENVIRONMENT, "HOME": folder, "TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        try:
            guarded.hold_group(process.pid)
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the program ran for {seconds:g} s") from error
        finally:
            with self._lock:
                self._running = None
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children, except those that left its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: IO[bytes]) -> str:
    """The start of what was written, up to :data:`LONGEST` characters."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    text = file.read(4 * LONGEST).decode("utf-8", errors="replace")
    if len(text) <= LONGEST and size <= 4 * LONGEST:
        return text
    return f"{text[:LONGEST]}\n[cut off after {LONGEST:,} characters]"
