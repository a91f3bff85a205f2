"""The garbage collector, and the turns of threads, while stages run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from rlc.runtime.concurrency import short_gc_pauses


def settings() -> tuple[tuple[int, int, int], float]:
    return gc.get_threshold(), sys.getswitchinterval()


@pytest.fixture
def nothing_is_excluded() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # as the rest of the tests have it


@pytest.mark.usefixtures("nothing_is_excluded")
def test_what_was_there_is_left_out_and_all_is_as_before_at_the_end() -> None:
    before = settings()
    first, second = short_gc_pauses(), short_gc_pauses()
    first.__enter__()
    assert gc.get_freeze_count()
    assert settings() != before
    second.__enter__()
    first.__exit__(None, None, None)  # stages of two jobs need not end in order
    assert gc.get_freeze_count()
    second.__exit__(None, None, None)
    assert (settings(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.usefixtures("nothing_is_excluded")
def test_a_stage_that_fails_leaves_no_trace() -> None:
    before = settings()
    with pytest.raises(ValueError, match="it fails"), short_gc_pauses():
        raise ValueError("it fails")
    assert (settings(), gc.get_freeze_count()) == (before, 0)


def test_what_a_program_has_excluded_itself_stays_so() -> None:
    before = gc.get_freeze_count()
    assert before
    with short_gc_pauses():
        pass
    assert gc.get_freeze_count() >= before - 100  # freed where the last reference went
