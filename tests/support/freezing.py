"""Keep the million objects that are there before the tests run out of garbage collection."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis.strategies import none

freeze, unfreeze = gc.freeze, gc.unfreeze


def freeze_for_good() -> None:
    """Exclude all objects of now until the process ends; runs, which exclude those of their time,
    then exclude none."""
    _begin_hypothesis()
    freeze()
    gc.freeze = gc.unfreeze = lambda: None


@settings(max_examples=1)
@given(none())
def _begin_hypothesis(_: None) -> None:
    """Have Hypothesis make its random numbers: it asks who refers to them, and from Python 3.14 on
    that would be a frozen dict, which is never among those found."""
