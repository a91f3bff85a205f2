"""The lock of a run folder, held by one process and released when it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from rlc.runtime.records import RunError

_FILE = ".lock"
_TRIES, _PAUSE = 10, 0.01  # :func:`is_locked` holds the lock for a moment


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
