"""The journal: what is committed is there after a crash, what is not is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.runtime.journal.database import Journal, RecordedUsage
from rlc.runtime.records import RunError, Usage


def test_a_step_counts_only_once_it_is_finished(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.start_step("main", 1)
    journal.finish_step("main", 1, {"env": 4}, {"reward/mean": 0.5})
    journal.add_checkpoint("main", 1, "path-1")
    journal.start_step("main", 2)
    journal.close()

    again = Journal(tmp_path / "journal.sqlite")
    (step,) = again.steps("main")
    assert (step.step, step.cursor, step.metrics) == (1, {"env": 4}, {"reward/mean": 0.5})
    assert again.checkpoints("main") == {1: "path-1"}


def test_rewinding_forgets_later_steps_but_not_what_they_cost(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    for step in (1, 2, 3):
        journal.start_step("main", step)
        journal.add_spend("main", step, Usage(prefill=10), 0.25)
        journal.finish_step("main", step, {}, {})
    journal.rewind("main", 1)
    assert [stored.step for stored in journal.steps("main")] == [1]
    assert journal.spent_usd() == 0.75


def test_free_and_unknown_prices_sum_to_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.add_spend("main", 1, Usage(sampled=5), None)
    assert journal.spent_usd() == 0.0


def test_what_a_stage_has_used_is_kept_up_to_date(tmp_path: Path) -> None:
    """Asked for once, it is added to; a journal that is opened afresh sums up the same."""
    journal = Journal(tmp_path / "journal.sqlite")
    assert journal.used("main") == RecordedUsage(0.0, 0, 0.0)
    for step in (1, 2, 3):
        journal.start_step("main", step)
        journal.add_spend("main", step, Usage(prefill=10, sampled=1), 0.25)
        journal.add_spend("other", step, Usage(trained=100), None)
        journal.finish_step("main", step, {}, {"time/total": 2.0})
        assert journal.used("main", step) == RecordedUsage(0.25, 11, 2.0)
        assert journal.used("main") == Journal(tmp_path / "journal.sqlite").used("main")
    assert journal.used("main") == RecordedUsage(0.75, 33, 6.0)
    journal.rewind("main", 1)
    assert journal.used("main") == RecordedUsage(0.75, 33, 2.0)
    assert journal.used("other") == RecordedUsage(0.0, 300, 0.0)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"not a database, but long enough to be read" * 50)
    with pytest.raises(RunError, match=r"journal .* cannot be read"):
        Journal(tmp_path / "journal.sqlite")
