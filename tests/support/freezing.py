"""Keep the million objects that are there before the tests run out of garbage collection."""

from __future__ import annotations

import gc

freeze, unfreeze = gc.freeze, gc.unfreeze


def freeze_for_good() -> None:
    """Exclude all objects of now until the process ends; runs, which exclude those of their time,
    then exclude none."""
    freeze()
    gc.freeze = gc.unfreeze = lambda: None


def begin_hypothesis() -> None:
    """Have Hypothesis make its random numbers, for which it collects garbage and asks who refers
    to them: while there are few objects, and from Python 3.14 on before that is a frozen dict,
    which is never among those found."""
    from hypothesis import given, settings
    from hypothesis.strategies import none

    @settings(max_examples=1)
    @given(none())
    def begin(_: None) -> None:
        pass

    begin()
