"""Shorter pauses of the interpreter during a stage that plays a thousand episodes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Collect a few hundred objects at a time, since a pass takes as long as it has objects to visit
# and most objects of the episodes in play stay; visit all objects only rarely.
_THRESHOLDS = (500, 2, 1_000)
_SWITCH_INTERVAL = 0.002  # seconds until a computing thread yields; Python's default is 0.005

_before: list[tuple[tuple[int, int, int], float]] = []  # settings before each running stage


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Exclude all existing objects from garbage collection, and collect in small passes.

    The modules, tokenizers and tasks that exist already are hundreds of thousands of objects, and
    visiting them takes a third of a second each time. Threads that compute, such as those of
    environments, yield sooner, because the event loop waits for each of them in turn.

    Safe to nest; at the end all settings are as before.
    """
    if not _before:
        gc.freeze()
    _before.append((gc.get_threshold(), sys.getswitchinterval()))
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        thresholds, interval = _before.pop()  # the first entry goes last, whoever ends first
        if not _before:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            sys.setswitchinterval(interval)
