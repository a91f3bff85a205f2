"""Guards of what this process starts outside of itself: they end it even if this is killed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from rlc.catalog import is_provided

# Reads commands, the last of which is the first to be run when the file ends.
_WAIT = 'while read -r line; do ends="$line; $ends"; done; eval "$ends"'
# The pipe is open until the other runs, so that the guard cannot read its end before.
_STARTED = 'echo "kill -s KILL -- -$$" >&0; exec "$0" "$@" </dev/null'
# Again after a while: what was killed may have written until it died.
_REMOVE = 'rm -rf -- "$0" || { sleep 1; rm -rf -- "$0"; }'
# Words in the names of variables that are secrets.
_SECRET = re.compile(
    r"^TINKER_|(^|_)(API)?(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?(_|$)", re.IGNORECASE
)


def variables(secrets: Sequence[str] | None) -> dict[str, str]:
    """Return the variables of the environment for a program: of secrets only those named."""
    given = secrets or ()

    def is_secret(name: str) -> bool:
        return _SECRET.search(name) is not None or is_provided(name)

    return {k: v for k, v in os.environ.items() if k in given or not is_secret(k)}


@frozen
class Guard:
    """A process beside this one, which reads the end of a file when nothing of this is left."""

    pipe: int

    def hold(self, *end: str) -> None:
        """Run a command if this process is killed from now on, the last one first."""
        os.write(self.pipe, f"{shlex.join(end)}\n".encode())

    def command(self, *words: str) -> list[str]:
        """Return a command that runs another, without input. To be started with the ``pipe`` as its
        input, in a session of its own: from its first moment it dies if this process is killed."""
        return ["/bin/sh", "-c", _STARTED, *words]


@contextmanager
def guard() -> Iterator[Guard]:
    """Open a guard while the block runs."""
    reads, writes = os.pipe()
    try:
        waiting = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT],
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


@contextmanager
def guarded_folder(prefix: str) -> Iterator[tuple[Path, Guard]]:
    """Open a temporary folder while the block runs, and a guard that removes it last."""
    with (
        guard() as guarded,
        TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
    ):
        guarded.hold("sh", "-c", _REMOVE, folder)
        yield Path(folder), guarded
