"""Folders of runs and of sweeps: how they are named, made, and held by one process."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlc.runtime.records import RunError

_FILE = ".lock"
_TRIES, _PAUSE = 10, 0.01  # :func:`is_locked` holds the lock for a moment


def command(verb: str, run: Path) -> str:
    """Return a command about a run as a shell takes it, whatever its folder is called."""
    name = str(run)
    return f"rlc {verb} {shlex.quote(f'./{name}' if name.startswith('-') else name)}"


def new_folder(root: Path, recipe: str) -> Path:
    """Make an empty folder with the name of the recipe and the time in plain characters; with a
    number too, if another run began in the same second."""
    plain = re.sub(r"[^\w.-]+", "-", recipe).strip("-.") or "recipe"
    path = first = root / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")


@contextmanager
def made_and_locked(
    path: Path | None, name: str, kind: str, resume: str
) -> Iterator[tuple[Path, ExitStack]]:
    """Make a folder, by default ``runs/NAME-TIME``, and hold it until the returned stack is closed:
    at the end of the block, unless that takes its callbacks over.

    Raise RunError, in which ``kind`` says what folder it is, if it has content (it is gone on with
    by the command ``resume``) or cannot be written; a new one is then deleted.
    """
    made = path is None or not path.exists()
    try:
        if path is None:
            path = new_folder(Path("runs"), name)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise RunError(
                f"the {kind} {path} already exists",
                f"go on with it (`{command(resume, path)}`) or choose another --run-dir",
            )
        with ExitStack() as opened:
            opened.callback(os.close, lock(path))
            yield path, opened
    except OSError as error:
        if made and path is not None:
            shutil.rmtree(path, ignore_errors=True)
        raise RunError(
            f"cannot write the {kind} {path or 'runs'}: {error.strerror or error}",
            "choose another place with --run-dir",
        ) from error


@contextmanager
def locked(path: Path, kind: str) -> Iterator[ExitStack]:
    """Hold a folder that is there, as `made_and_locked` does."""
    try:
        with ExitStack() as opened:
            opened.callback(os.close, lock(path))
            yield opened
    except OSError as error:
        raise RunError(
            f"cannot write the {kind} {path}: {error.strerror or error}",
            "see to its permissions and to the room on its disk, then go on",
        ) from error


def lock(path: Path) -> int:
    """Hold a folder against other processes until the returned descriptor is closed.

    Raise RunError if another process holds it, OSError if the folder cannot be written.
    """
    handle = os.open(path / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for attempt in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if attempt == _TRIES - 1:
                holder = os.read(handle, 64).decode(errors="replace").strip()
                os.close(handle)
                whose = f" ({holder})" if holder else ""
                raise RunError(
                    f"another process{whose} is running {path}", "wait for it to end"
                ) from error
            time.sleep(_PAUSE)
    os.truncate(handle, 0)
    os.write(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
    return handle


def is_locked(path: Path) -> bool:
    """Whether a process holds the folder."""
    try:
        with (path / _FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
