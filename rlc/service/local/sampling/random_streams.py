"""Uniform numbers as a pure function of a key and a counter: Philox 4×32 with ten rounds.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A
stream has no state to share or to save: number ``t`` of a stream does not depend on what else
is being drawn.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

UInt64 = npt.NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def stream_key(seed: int, index: int) -> int:
    """Return the 64-bit key of stream ``index`` under ``seed``; any integers."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def philox(counter: tuple[UInt64, UInt64, UInt64, UInt64], key_B: UInt64) -> tuple[UInt64, ...]:
    """Return four 32-bit words (in uint64 arrays) for each counter, of four such words, and key."""
    x0, x1, x2, x3 = counter
    for turn in range(10):
        key0 = (key_B + np.uint64(turn * _WEYL[0] & 0xFFFFFFFF)) & _LOW
        key1 = ((key_B >> _32) + np.uint64(turn * _WEYL[1] & 0xFFFFFFFF)) & _LOW
        product0, product2 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (product2 >> _32) ^ x1 ^ key0,
            product2 & _LOW,
            (product0 >> _32) ^ x3 ^ key1,
            product0 & _LOW,
        )
    return x0, x1, x2, x3


def uniforms(key_B: UInt64, t_B: UInt64) -> npt.NDArray[np.float64]:
    """Return number ``t`` of each stream, uniform in [0, 1) with 53 random bits."""
    zero = np.zeros_like(t_B)
    x0, x1, _, _ = philox((t_B & _LOW, t_B >> _32, zero, zero), key_B)
    return ((x0 << np.uint64(21)) | (x1 >> np.uint64(11))).astype(np.float64) * 2.0**-53
