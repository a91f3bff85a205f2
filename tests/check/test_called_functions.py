"""Functions of the user's own in a recipe: looked at, kept in the plan, explained and packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_examples import complete

from rlc.cli.main import main
from rlc.compile.recipe import CompileResult, compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash

CREDIT = "def advantages(total_R, scale=1.0):\n    return scale * (total_R - total_R.mean())\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "credit.py").write_text(CREDIT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compiled(*fields: str, imports: bool = False) -> CompileResult:
    """A training stage with some fields, read, and tried if modules may be imported."""
    text = "".join(f"  {field}\n" for field in fields)
    recipe = complete(f"train main {{\n{text}  …\n}}\n")
    return compile_source(Source("recipe.rl", recipe), reader=Reader(imports=imports))


def messages(*fields: str) -> list[tuple[str, str]]:
    found = compiled(*fields).diagnostics
    return [(item.code, item.message) for item in found if item.severity == "error"]


NO_STEP = "no step can follow `credit.py:advantages`: a function gives the advantages as they are"
OWN = 'advantage = python("credit.py:advantages")'


def test_it_is_tried_where_modules_may_be_imported() -> None:
    assert not compiled(OWN, imports=True).diagnostics.has_errors


@pytest.mark.parametrize(
    ("field", "code", "message"),
    [
        ('python("credits.py:advantages")', "RL0001", 'there is no file "credits.py"'),
        ('python("credit.py:advantage")', "RL0510", "credit.py has no `advantage`"),
        (
            'python("credit.py:advantages", args = { factor = 2 })',
            "RL0511",
            "`credit.py:advantages` does not take `factor`; it takes `total_R`, `scale`",
        ),
        (
            'python("credit.py:advantages", args = { total_R = 2 })',
            "RL0511",
            "leave `total_R` out of the args of `credit.py:advantages`: rlc gives it",
        ),
        (
            'python("credit.py:advantages") |> clip(-1, 1)',
            "RL0643",
            NO_STEP,
        ),
        (
            'python("credit.py:advantages") |> weighted_sum()',
            "RL0643",
            NO_STEP,
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(field: str, code: str, message: str) -> None:
    assert messages(f"advantage = {field}") == [(code, message)]


def test_what_has_no_effect_is_an_error() -> None:
    kl = "kl = reference(policy.base, coef = 0, final = 0.1)"
    assert (
        "RL0312",
        "`final` has no effect: with a `coef` of 0 there is no penalty in any step",
    ) in (messages(kl))
    sums = '{"question": "1 + 1 = ?", "answer": 2}\n'
    Path("sums.jsonl").write_text(sums * 9)
    env = 'env = problems("sums.jsonl", grader = numeric) |> curriculum(args = { a = 1 })'
    said = "`curriculum()` has `args` for a function, and none that weighs tasks"
    assert messages(env) == [("RL0312", said)]
    env = env.replace("args = { a = 1 }", 'by = "credit.py:advantages", explore = 0.5')
    assert [code for code, _ in messages(env)] == ["RL0312"]


def test_the_gradient_waits_for_it() -> None:
    streamed = compiled(OWN, "overlap = streamed(minibatches = 4)").diagnostics
    (found,) = (item for item in streamed if item.code == "RL0319")
    assert "`credit.py:advantages` is given all of it" in [label.text for label in found.labels]


def test_its_file_is_part_of_the_plan_and_of_a_job(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan_of(recipe: Path) -> Any:
        assert main(["explain", "--out", str(folder / "plan.json"), str(recipe)]) == 0
        return json.loads((folder / "plan.json").read_text())

    recipe = folder / "recipe.rl"
    recipe.write_text(complete(f"train main {{\n  {OWN}\n  …\n}}\n"))
    first = plan_of(recipe)
    assert [file["path"] for file in first["data"]] == ["credit.py"]
    (folder / "credit.py").write_text(CREDIT.replace("mean", "max"))
    assert plan_of(recipe)["data"] != first["data"]
    assert main(["explain", "--full", str(recipe)]) == 0
    assert "A = credit.py:advantages(…)   a function of your own" in capsys.readouterr().out
    assert main(["emit", "--target", "job", str(recipe), "--out", str(folder / "job")]) == 0
    packed = (folder / "job" / "recipe" / "credit.py").read_text()
    assert packed == (folder / "credit.py").read_text()


def test_arguments_are_part_of_the_plan() -> None:
    plans = [
        compiled(f"advantage = python({given})").plan
        for given in (
            '"credit.py:advantages"',
            '"credit.py:advantages", args = { scale = 2.0 }',
        )
    ]
    assert all(plans)
    assert len({plan_hash(plan) for plan in plans if plan is not None}) == 2
