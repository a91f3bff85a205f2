"""Where servers listen, and who may ask them: what `rlc serve` and `rlc watch` have in common."""

from __future__ import annotations

import argparse
import os

from rlc.errors import Error
from rlc.service import LOOPBACK

KEY_VARIABLE = "RLC_SERVE_KEY"


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Add the options that say where a server listens, by default on loopback."""
    usual = f"default {port}; 0: a free one" if port else "default a free one"
    parser.add_argument("--port", type=int, default=port, help=f"port ({usual})")
    parser.add_argument("--host", default=LOOPBACK, help=f"address (default {LOOPBACK})")
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help=f"let --host be other than loopback; the key in {KEY_VARIABLE} is then required",
    )


def is_local(host: str) -> bool:
    """Return whether only programs on this machine reach an address."""
    return host in (LOOPBACK, "localhost")


def key_of(args: argparse.Namespace) -> str | None:
    """Return the key that clients must send; None on loopback without one. Raise Error where other
    machines are let in without a key, or without saying so."""
    key = os.environ.get(KEY_VARIABLE) or None
    if is_local(args.host):
        return key
    if not args.allow_remote:
        raise Error(
            f"--host {args.host} would let other machines in; add --allow-remote to mean it"
        )
    if key is None:
        raise Error(f"--allow-remote needs a key for the clients in {KEY_VARIABLE}")
    return key
