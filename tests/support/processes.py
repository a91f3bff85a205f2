"""Processes that are forked from one that has imported the heavy libraries already."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import runpy
import sys
import termios
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any
from unittest.mock import patch

from unsynced import sync_nothing

FORKING = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "rlc.service.engine",
    "torch",
    "transformers",
    "tinker",
    "tinker_cookbook.rl.train",
    "tinker_cookbook.supervised.train",
    "openai",
    "gem",
    "reasoning_gym",
    "killing",
    "rlc.cli.commands.jobs.run",
    "rlc.cli.commands.jobs.sweep",
    "rlc.cli.live.observers",
    "rlc.runtime.start",
    "rlc.runtime.job",
    "rlc.sweeps.start",
    "forked",
]

# What npm says where there is no network, which is not a mistake of the extension.
NO_NETWORK = (
    *("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "ECONNRESET"),
    *("ERR_SOCKET_TIMEOUT", "E500", "E502", "E503", "E504"),
)


def fork(log: Path, body: Callable[..., None], *args: Any) -> Any:
    """Start a process that calls ``body``; what it prints is added to the file ``log``."""
    FORKING.set_forkserver_preload(_PRELOADED)
    environment = dict(os.environ)
    # Python 3.11 does not tell the server where the modules of tests are.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        ensure_running()
    process = FORKING.Process(target=_logged, args=(str(log), environment, body, args))
    process.start()
    return process


def _logged(
    log: str, environment: Mapping[str, str], body: Callable[..., None], args: Sequence[Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sync_nothing()
    body(*args)


def run_script(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a Python script to its end in a folder, and return what it has printed."""
    log = folder / "log.txt"
    process = fork(log, script, list(command), str(folder), dict(environment))
    process.join()
    told = log.read_text(encoding="utf-8")
    assert process.exitcode == 0, told[-3_000:]
    return told


def on_terminal(terminal: Connection, body: Callable[..., object], *args: Any) -> None:
    """Call ``body`` on a terminal, whose Ctrl-C is a signal to this process."""
    os.setsid()
    fcntl.ioctl(terminal.fileno(), termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(terminal.fileno(), fd)
    terminal.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # it was closed
    body(*args)


def command(words: list[str]) -> None:
    """The command line, on the double."""
    from plain_service import plain_service

    from rlc.cli.main import entry

    sys.argv = ["rlc", *words]
    with plain_service():
        entry()


def script(
    command: list[str], folder: str, environment: dict[str, str], output: str | None = None
) -> None:
    """Run a Python script in this process; ``output`` is the file or pipe that it prints to."""
    if output is not None:
        os.dup2(os.open(output, os.O_WRONLY), 1)
    os.environ.update(environment)
    os.chdir(folder)
    warnings.simplefilter("ignore")
    sys.argv = command
    sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))
    runpy.run_path(command[0], run_name="__main__")


def no_network(said: str) -> bool:
    """Return whether npm failed because it reaches no registry."""
    return any(code in said for code in NO_NETWORK)
