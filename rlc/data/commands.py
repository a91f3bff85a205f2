"""Commands of servers and tools, as a recipe writes them."""

from __future__ import annotations

import shlex
import shutil
import sys

from rlc.data.errors import DataError

# The programs that start containers, by the word that stands for any of them.
CONTAINERS = {"container": ("docker", "podman")}


def server_command(server: str) -> list[str] | None:
    """Return the command that starts a server; None for an address. Raise DataError for a command
    line that cannot be read."""
    if server.startswith(("http://", "https://")):
        return None
    if server.endswith(".py") and " " not in server:
        return [sys.executable, server]
    try:
        words = shlex.split(server)
    except ValueError as error:
        raise DataError(f"`{server}` is no command: {error}") from error
    if not words:
        raise DataError("the command is empty")
    return words


def is_command(name: str) -> bool:
    return shutil.which(name) is not None
