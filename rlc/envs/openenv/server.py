"""A server of OpenEnv on this machine, started for a run.

``{port}`` in its command is where it is asked for. The environment of a package, named as it is
imported, is served by its own `server.app`, as OpenEnv lays packages out.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGKILL

from rlc.chat.turns import EnvError
from rlc.data.commands import is_command, server_command
from rlc.data.errors import DataError
from rlc.envs.guarded import guard
from rlc.envs.openenv.client import schema_of
from rlc.plan.units import elapsed

_STARTING = 120.0  # seconds within which a server must answer: it may be installed first
_ASKED_AGAIN = 0.1
_PORT = "{port}"


@contextmanager
def served(server: str) -> Iterator[str]:
    """The address of a server while the block runs: its own, or that of one that is started here.
    Raise EnvError if it cannot be started or does not answer."""
    command = _command(server)
    if command is None:
        yield server
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [word.replace(_PORT, str(port)) for word in command]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if words[0] != sys.executable:  # another Python has packages of its own
        env.pop("PYTHONPATH")
    with tempfile.TemporaryFile() as log, guard() as guarded:
        process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            guarded.hold_group(process.pid)
            _await(server, url, process, log.fileno())
            yield url
        finally:
            with suppress(ProcessLookupError):  # the group may outlive its leader
                os.killpg(process.pid, SIGKILL)
            process.wait()


def _command(server: str) -> list[str] | None:
    """The words of the command that starts a server; None for an address."""
    if server.isidentifier():
        if importlib.util.find_spec(server) is None:
            raise EnvError(f"there is no package `{server}` here, nor beside the recipe")
        app = f"{server}.server.app"
        return [sys.executable, "-m", app, "--host", "127.0.0.1", "--port", _PORT]
    try:
        command = server_command(server)
    except DataError as error:
        raise EnvError(str(error)) from error
    if command is not None and not is_command(command[0]):
        raise EnvError(f"the server `{server}` cannot be started: there is no `{command[0]}` here")
    return command


def _await(server: str, url: str, process: subprocess.Popen[bytes], log: int) -> None:
    """Wait until a server answers. Raise EnvError if it ends before, or takes too long."""
    end = time.monotonic() + _STARTING
    while True:
        try:
            schema_of(url)
            return
        except EnvError:
            status, late = process.poll(), time.monotonic() > end
            if status is None and not late:
                time.sleep(_ASKED_AGAIN)
                continue
        written = os.pread(log, 1 << 20, 0).decode(errors="replace").strip().splitlines()
        why = f": {written[-1]}" if written else ""
        ended = "did not answer in " + elapsed(_STARTING) if status is None else "ended"
        raise EnvError(f"the OpenEnv server `{server}` {ended}{why}")
