"""Named random streams: every random choice of a run derives from its one seed."""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed of the stream ``names`` under ``seed``, the same on any platform."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of sample ``index`` of a seeded request, if each is requested alone."""
    digest = blake2b(f"{seed}/{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) % 2**31
