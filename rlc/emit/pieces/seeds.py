"""Named random streams."""

from __future__ import annotations

from hashlib import blake2b


def stream(seed: int, *names: str | int) -> int:
    """The seed of a random stream of its own under ``seed``."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
