"""What differs between two plans."""

from __future__ import annotations

import json

import pytest
from plan_recipes import EVERYTHING, planned, recipe

from rlc.explanation.diff import NO_CHANGE, diff_dict, diff_plans, diff_text

QUICK = recipe("quickstart")


def changes(*overrides: str, text: str = QUICK) -> dict[str, tuple[object, object]]:
    diff = diff_plans(planned(text), planned(text, *overrides))
    return {change.path: (change.before.value, change.after.value) for change in diff.values}


def test_a_plan_does_not_differ_from_itself() -> None:
    diff = diff_plans(planned(EVERYTHING), planned(EVERYTHING))
    assert not diff
    assert diff_text(diff, "a", "b") == f"a → b\n{NO_CHANGE}\n"


def test_how_it_is_written_is_no_difference() -> None:
    moved = "# a comment\n\n" + QUICK.replace("group_size = 8", "group_size = 4 + 4")
    diff = diff_plans(planned(QUICK), planned(moved))
    assert not diff
    assert diff.values == ()


def test_values_with_where_both_came_from() -> None:
    before, after = planned(QUICK), planned(QUICK, "main.steps=7", seed=2)
    diff = diff_plans(before, after)
    assert diff
    seed, steps = diff.values
    assert (seed.path, seed.before.value, seed.after.value) == ("seed", 1, 2)
    assert (seed.before.origin, seed.after.origin) == ("default", "--seed")
    assert (steps.path, steps.before.value, steps.after.value) == ("main.steps", 50, 7)
    assert steps.after.origin == "--set main.steps"
    assert "50 → 7" in diff_text(diff, "a", "b")


@pytest.mark.parametrize(
    ("override", "path", "values"),
    [
        ("main.kl=reference(policy.base, coef = 0.1)", "main.kl.coef", (None, 0.1)),
        ("main.loss=ppo()", "main.loss.config.clip_low_threshold", (None, 0.8)),
        ("main.track=[tensorboard()]", "main.track.tensorboard.name", (None, "tensorboard")),
        ("guess.max_turns=3", "main.envs.guess.args.max_turns", (4, 3)),
    ],
)
def test_a_part_that_only_one_has(override: str, path: str, values: tuple[object, object]) -> None:
    assert changes(override)[path] == values


def test_none_in_place_of_a_part_is_not_told_twice() -> None:
    found = changes("main.kl=reference(policy.base, coef = 0.1)")
    assert "main.kl" not in found
    changed = {path for path in found if path.startswith("main.kl.")}
    assert {"main.kl.coef", "main.kl.discount", "main.kl.reference.model.base"} < changed
    assert "main.kl.reference" not in changed


def test_a_stage_more_is_one_change() -> None:
    diff = diff_plans(planned(QUICK), planned(recipe("warm_start")))
    by_path = {change.path: change for change in diff.values}
    assert not by_path["warmup"].before.exists
    assert not any(path.startswith("warmup.") for path in by_path)
    text = diff_text(diff, "a", "b")
    assert "sft stage added" in text
    assert "eval stage added" in text


def test_formulas_graph_and_cost() -> None:
    text = recipe("sudoku")
    before = planned(text)
    after = planned(
        text,
        "main.advantage=reinforce()",
        "main.steps=100",
        "main.kl=reference(policy.base, coef = 0.1)",
    )
    diff = diff_plans(before, after)
    assert [(change.stage, change.part) for change in diff.formulas] == [
        ("main", "advantage"),
        ("main", "kl"),
    ]
    assert diff.formulas[0].after == ("A = Σ_t r_t",)
    assert any("main.reference" in line for line in diff.graph["added"])
    assert diff.graph["removed"] == ()
    old, new = diff.cost["expected"]
    assert new.usd < old.usd
    assert set(diff.bill) == {"prefill", "cached", "sample", "train", "reference"}
    shown = diff_text(diff, "a", "b")
    for title in ("values", "formulas", "graph", "cost in USD"):
        assert f"  {title}\n" in shown


def test_small_changes_of_cost_have_their_digits() -> None:
    before, after = planned(recipe("sudoku")), planned(recipe("sudoku"), "main.steps=301")
    shown = diff_text(diff_plans(before, after), "a", "b")
    assert "$0.00" not in shown


def test_overlap_differs_in_the_edges() -> None:
    diff = diff_plans(
        planned(QUICK), planned(QUICK, "main.overlap=asynchronous(max_staleness = 1)")
    )
    (added,) = diff.graph["added"]
    assert added == "main.optim_step → main.snapshot: weights (step − 1, up to 1 older)"


def test_true_is_not_one() -> None:
    """A value and its type: the JSON of both would differ too."""
    found = changes("second.steps=1", text=EVERYTHING)
    assert found == {"second.steps": (10, 1)}


def test_json_of_a_difference() -> None:
    diff = diff_plans(planned(QUICK), planned(QUICK, "main.steps=7"))
    data = json.loads(json.dumps(diff_dict(diff, "a", "b")))
    assert data["same"] is False
    assert data["values"] == [
        {
            "path": "main.steps",
            "before": {"value": 50, "origin": "test.rl:25"},
            "after": {"value": 7, "origin": "--set main.steps"},
        }
    ]
    assert data["cost"]["high"]["before"] == 0.0
