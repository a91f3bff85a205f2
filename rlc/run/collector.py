"""Python's garbage collector, kept from stopping a stage that plays a thousand episodes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (5_000, 5, 20)  # a thousand episodes in play make objects far too fast for 700

_running: list[tuple[int, int, int]] = []  # a stage each, with the thresholds before it


@contextmanager
def short_collections() -> Iterator[None]:
    """Collections within look only at what came to be within, and less often: what was there
    before (modules, tokenizers, tasks) is hundreds of thousands of objects, looked through in
    vain for a third of a second each time. Safe to nest; all is as before at the end."""
    if not _running:
        gc.freeze()
    _running.append(gc.get_threshold())
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        before = _running.pop()  # the first stage's is the last to go, whichever ends last
        if not _running:
            gc.set_threshold(*before)
            gc.unfreeze()
