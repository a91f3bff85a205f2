"""A socket that listens, for servers of any kind."""

from __future__ import annotations

import re
import socket

from rlc.service.interface import ServiceError

LOOPBACK = "127.0.0.1"
BACKLOG = 2048
_LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)


def is_local_host(host: str) -> bool:
    """Return whether the Host header of a request names this machine. A page of another site can
    let its own name stand for this machine, to read what a server here tells without a key."""
    return _LOCAL_HOST.fullmatch(host) is not None


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raise ServiceError if that fails."""
    # asyncio turns Nagle's delay of 40 ms off only for sockets that say they are TCP.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise ServiceError(f"cannot listen on {host}:{port}: {error}") from error
    return listening
