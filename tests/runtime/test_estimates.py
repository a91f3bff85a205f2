"""The high estimate holds against what a service counts, with the included model as every one.

The recipes of the project are compared where they are rehearsed (`test_recipes.py`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve
from paths import RECIPES
from priced_recipes import BATCHES, DATA, HERE, JUDGES, PLAYED, STAGES, WORLDS, plan_of, text_of
from run_support import plan, run_new, shortened
from spending import bounded

from rlc.compile.variants import rehearse
from rlc.pricing.cost import plan_cost
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import RunError

pytestmark = pytest.mark.plain


def test_every_part_is_in_one_of_the_recipes() -> None:
    used = {part for parts in PLAYED.splitlines() for part in parts.split("; ")}
    assert used == {*WORLDS, *JUDGES, *STAGES, *BATCHES}


@pytest.mark.parametrize("parts", PLAYED.splitlines())
def test_no_model_takes_more_than_the_high_estimate(parts: str, tmp_path: Path) -> None:
    made = plan_of(text_of(*parts.split("; ")))
    assert made is not None
    job = rehearse(made)
    # A model that knows nothing has no two replies of different worth.
    with bounded(job), suppress(RunError):
        run_new(tmp_path / "run", job)


@pytest.mark.parametrize(
    ("world", "judge"), [(f'python("{HERE}:Flaky")', "none"), (WORLDS["python"], "scored")]
)
@pytest.mark.parametrize("batch", ["replaced", "turns"])
def test_tries_after_failures_take_no_more(
    world: str, judge: str, batch: str, tmp_path: Path
) -> None:
    """Episodes fail in their last turn, or with a judge that gives no score."""
    text = text_of("python", judge, "rl, plain", batch, limits="max_tokens = 12, max_turns = 4")
    text = text.replace(WORLDS["python"], world).replace("max_tokens = 16", "max_tokens = 24")
    job = plan_of(text.replace("steps = 2", "steps = 1  on_error = retry(20) then drop"))
    assert job is not None
    with bounded(job), suppress(RunError):
        run_new(tmp_path / "run", job)


@pytest.mark.parametrize("failure", ["drop", "retry(1) then drop", "penalise(-1)"])
def test_a_batch_of_turns_most_of_which_are_lost_takes_no_more(
    failure: str, tmp_path: Path
) -> None:
    """Others are played in their place, but not for ever."""
    text = text_of("python", "none", "rl, plain", "turns", limits="max_tokens = 12, max_turns = 3")
    text = text.replace(WORLDS["python"], f'python("{HERE}:MostlyFailing")')
    text = text.replace("turns(5, parallel = 2)", "turns(40, parallel = 4)")
    job = plan_of(text.replace("steps = 2", f"steps = 2  on_error = {failure}"))
    assert job is not None
    with bounded(job):
        run_new(tmp_path / "run", job)


@pytest.mark.server
def test_what_an_agent_writes_itself_takes_no_more(tmp_path: Path) -> None:
    wordy = f'agent("{HERE}:wordy", tasks = rows("{DATA}/doors.jsonl"))'
    text = text_of("python", "none", "rl, plain", "groups", limits="max_tokens = 12, max_turns = 2")
    job = plan_of(text.replace(WORLDS["python"], wordy))
    assert job is not None
    with bounded(job):
        run_new(tmp_path / "run", job)


@pytest.mark.parametrize(
    "name", ["cookbook_arithmetic", "python_environment", "quickstart", "spell_backward", "sudoku"]
)
def test_a_recipe_that_others_rehearse_takes_no_more(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = shortened(rehearse(evolve(plan(name), recipe=str(RECIPES / f"{name}.rl"))))
    with bounded(job):
        run_new(tmp_path / "run", job)


def test_what_learns_from_files_takes_no_less_than_the_low_estimate(tmp_path: Path) -> None:
    """Roles of messages are markup, and not counted beside it."""
    job = rehearse(plan("preferences"))
    run_new(tmp_path / "run", job)
    journal = Journal(tmp_path / "run" / "journal.sqlite", read_only=True)
    (cost,) = plan_cost(job)
    used = journal.used("align").tokens
    journal.close()
    assert cost.tokens("low") <= used < 1.3 * cost.tokens("expected")
