"""The garbage collector, and the turns of threads, while stages run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import freezing
import pytest

from rlc.runtime.concurrency import short_gc_pauses


@pytest.fixture(autouse=True)
def _nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc, "freeze", freezing.freeze)
    monkeypatch.setattr(gc, "unfreeze", freezing.unfreeze)
    gc.unfreeze()
    yield
    freezing.freeze()


def settings() -> tuple[tuple[int, int, int], float]:
    return gc.get_threshold(), sys.getswitchinterval()


def test_what_was_there_is_left_out_and_all_is_as_before_at_the_end() -> None:
    before, frozen = settings(), gc.get_freeze_count()
    first, second = short_gc_pauses(), short_gc_pauses()
    first.__enter__()
    assert gc.get_freeze_count() > frozen
    assert settings() != before
    second.__enter__()
    first.__exit__(None, None, None)  # stages of two jobs need not end in order
    assert gc.get_freeze_count() > frozen
    second.__exit__(None, None, None)
    assert (settings(), gc.get_freeze_count()) == (before, 0)


def test_a_stage_that_fails_leaves_no_trace() -> None:
    before = settings()
    with pytest.raises(ValueError, match="it fails"), short_gc_pauses():
        raise ValueError("it fails")
    assert (settings(), gc.get_freeze_count()) == (before, 0)
