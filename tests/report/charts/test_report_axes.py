"""What curves are drawn by instead of steps."""

from __future__ import annotations

import pytest
from attrs import evolve
from made_up_runs import write_run

from rlc.report.figures import axes_of
from rlc.report.run_files import RunFiles, Spent, TimeSpan, read_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    folder = tmp_path_factory.mktemp("axes") / "run"
    write_run(folder, planned=4)
    return read_files(folder)


def steps(*spans: tuple[float, float]) -> tuple[TimeSpan, ...]:
    return tuple(TimeSpan("main", i, 0, "step", *span) for i, span in enumerate(spans, 1))


def test_pauses_do_not_count_and_what_overlaps_counts_once(files: RunFiles) -> None:
    resumed = evolve(files, steps=steps((10, 14), (12, 16), (100, 103)))
    assert axes_of(resumed)["main"]["time"] == [0, 4, 6, 9]


def test_tokens_and_dollars_are_those_of_the_journal(files: RunFiles) -> None:
    used = [Spent("main", step, {"sampled": 10 * step, "trained": 1}, 0.5) for step in (1, 2)]
    known = evolve(files, steps=steps((0, 1), (1, 2)), spent=tuple(used))
    assert axes_of(known) == {
        "main": {
            "step": [0, 1, 2],
            "time": [0, 1, 2],
            "tokens": [0, 11, 32],
            "dollars": [0, 0.5, 1],
        }
    }
    for usd in (None, 0.0):  # an unknown price, and none
        free = [evolve(one, usd=usd) for one in used]
        assert "dollars" not in axes_of(evolve(known, spent=tuple(free)))["main"]


def test_of_a_long_run_some_steps_stand_for_all(files: RunFiles) -> None:
    long = evolve(files, steps=steps(*((i, i + 1) for i in range(5_000))))
    axes = axes_of(long)["main"]
    assert len(axes["step"]) == 301
    assert (axes["step"][-1], axes["time"][-1]) == (5_000, 5_000)


def test_nothing_is_known_before_the_first_step(files: RunFiles) -> None:
    assert axes_of(evolve(files, steps=())) == {}
