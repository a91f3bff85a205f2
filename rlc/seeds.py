"""Named random streams: every random choice of a run derives from its one seed."""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream ``names`` under ``seed``.

    Streams with different names are independent; the same names give the same stream in any
    process and on any platform.
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
