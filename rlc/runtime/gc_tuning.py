"""Python's own pauses, kept from stopping a stage that plays a thousand episodes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Some hundred objects at a time: what a pass looks through is what it takes, and most of what a
# thousand episodes in play are made of stays. All of it is looked through rarely.
_THRESHOLDS = (500, 2, 1_000)
_SWITCH = 0.002  # seconds for which a thread keeps the interpreter to itself; else 0.005

_running: list[tuple[tuple[int, int, int], float]] = []  # a stage each, with what was before it


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Within, the garbage collector looks only at what came to be within, and at little of it at a
    time: what was there before (modules, tokenizers, tasks) is hundreds of thousands of objects,
    looked through in vain for a third of a second each time. And a thread that computes, such as
    that of an environment, gives way sooner: the event loop waits for each of them in turn.

    Safe to nest; all is as before at the end.
    """
    if not _running:
        gc.freeze()
    _running.append((gc.get_threshold(), sys.getswitchinterval()))
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        thresholds, switch = _running.pop()  # the first stage's is the last to go, in any order
        if not _running:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            sys.setswitchinterval(switch)
