"""What this process has started outside of itself, ended even if it is killed itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

_GROUP = ("kill", "-s", "KILL", "--")
# Waits for a name; when the file ends after it, what is named is ended.
_WAIT = 'read -r held && { read -r _; "$@" "$held"; }'


@frozen
class Guard:
    """A process that waits beside this one. It meets the end of a file when nothing of this process
    is left."""

    pipe: int

    def hold(self, name: str) -> None:
        """Let it end this, if this process is killed from now on."""
        os.write(self.pipe, f"{name}\n".encode())

    def hold_group(self, group: int) -> None:
        """Let it kill a group of processes, by its number."""
        self.hold(f"-{group}")


@contextmanager
def guard(end: Sequence[str] = _GROUP) -> Iterator[Guard]:
    """A guard while the block runs. ``end`` is the command that ends what is held, by its name,
    which becomes the last argument; by default what is held is a group of processes."""
    reads, writes = os.pipe()
    try:
        waiting = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "sh", *end],
            stdin=reads,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(writes)
        raise
    finally:
        os.close(reads)
    try:
        yield Guard(writes)
    finally:
        waiting.kill()  # before it can read that the file has ended
        os.close(writes)
        waiting.wait()
