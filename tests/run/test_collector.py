"""The garbage collector while stages run."""

from __future__ import annotations

import gc

import pytest

from rlc.run.collector import short_collections


def test_what_was_there_is_left_out_and_all_is_as_before_at_the_end() -> None:
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    first, second = short_collections(), short_collections()
    first.__enter__()
    assert gc.get_freeze_count() > frozen
    second.__enter__()
    first.__exit__(None, None, None)  # stages of two jobs need not end in order
    assert gc.get_freeze_count() > frozen
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, 0)


def test_a_stage_that_fails_leaves_no_trace() -> None:
    thresholds = gc.get_threshold()
    with pytest.raises(ValueError, match="it fails"), short_collections():
        raise ValueError("it fails")
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, 0)
