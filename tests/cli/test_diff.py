"""``rlc diff`` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from made_up_runs import write_run
from paths import RECIPES

from rlc.cli.main import main

QUICKSTART, MIXTURE = str(RECIPES / "quickstart.rl"), str(RECIPES / "mixture.rl")


def test_the_same_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy.rl"
    copy.write_text("# moved\n" + Path(QUICKSTART).read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["diff", QUICKSTART, str(copy)]) == 0
    assert "no change" in capsys.readouterr().out


def test_two_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", QUICKSTART, MIXTURE]) == 1
    text = capsys.readouterr().out
    assert "main.optimizer.learning_rate" in text
    assert "0.0003 → 0.001" in text
    assert "\x1b" not in text


def test_with_and_without_an_override(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", QUICKSTART, "--set", "main.steps=10"]) == 1
    assert "50 → 10" in capsys.readouterr().out
    assert main(["diff", QUICKSTART, "--set", "main.steps=50"]) == 0


SWEEP = """
sweep rates {
  of = main  over = { learning_rate = [1e-5, 4e-5] main.steps = [5, 9] }  seeds = 2
  metric = main.reward
}
"""


def test_sweeps_are_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.rl", tmp_path / "after.rl"
    text = Path(QUICKSTART).read_text(encoding="utf-8")
    before.write_text(text + SWEEP, encoding="utf-8")
    assert main(["diff", str(before), QUICKSTART]) == 1
    assert "rates  sweep removed" in capsys.readouterr().out
    changed = SWEEP.replace("1e-5, 4e-5]", "1e-5, 4e-5, 1e-4]").replace("seeds = 2", "")
    after.write_text(text + changed.replace("  metric", "  search = random(3)  metric"))
    assert main(["diff", str(before), str(after), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["values"] == []
    assert {one["path"]: one["after"]["value"] for one in found["sweeps"]} == {
        "rates.over.learning_rate": "1e-5, 4e-5, 1e-4",
        "rates.search": "random(3)",
        "rates.seeds": 1,
    }
    assert main(["diff", str(before), str(after)]) == 1
    assert "rates.search              grid() → random(3)" in capsys.readouterr().out
    assert main(["diff", str(before), str(before), "--set", "main.save=every(25)"]) == 0


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", QUICKSTART, "--rehearse", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["same"] is False
    assert "main.steps" in {change["path"] for change in data["values"]}


def test_a_saved_plan_against_its_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["explain", QUICKSTART, "--set", "main.steps=10", "--out", plan]) == 0
    capsys.readouterr()
    assert main(["diff", plan, QUICKSTART]) == 1
    assert "10 → 50" in capsys.readouterr().out
    assert main(["diff", plan, plan]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [QUICKSTART],
        [QUICKSTART, "absent.rl"],
        [QUICKSTART, "absent.json"],
        [QUICKSTART, "--set", "main.steps=none"],
        [QUICKSTART, "plan.json", "--seed", "2"],
    ],
)
def test_errors_are_neither_same_nor_different(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_the_plans_of_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, planned in (("short", 4), ("long", 8)):
        write_run(tmp_path / name, planned=planned)
    runs = [str(tmp_path / "short"), str(tmp_path / "long")]
    assert main(["diff", *runs]) == 1
    assert re.search(r"main\.steps +4 → 8", capsys.readouterr().out)
    assert main(["diff", runs[0], runs[0]]) == 0
    capsys.readouterr()
    assert main(["diff", *runs, "--set", "main.steps=3"]) == 2
    assert "options apply to a recipe" in capsys.readouterr().err
    assert main(["diff", runs[0], str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
