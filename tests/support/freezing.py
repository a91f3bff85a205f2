"""Keep the million objects that are there before the tests run out of garbage collection."""

from __future__ import annotations

import gc

freeze, unfreeze = gc.freeze, gc.unfreeze


def freeze_for_good() -> None:
    """Exclude all objects of now until the process ends; runs, which exclude those of their time,
    then exclude none."""
    freeze()
    gc.freeze = gc.unfreeze = lambda: None
