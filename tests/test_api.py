"""rlc from Python."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import pickle
import pydoc
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from attrs import fields, has
from paths import RECIPES

import rlc
from rlc.api import Setting, written
from rlc.compile.variants import ServiceMismatchError
from rlc.emit.errors import EmitError
from rlc.lang.diagnostics import Diagnostics
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer

QUICKSTART = RECIPES / "quickstart.rl"
TINY: dict[str, Setting] = {
    "main.steps": 1,
    "main.batch": "groups(1, group_size = 2)",
    "main.sampling.max_tokens": 4,
}


def test_a_recipe_is_checked_planned_and_explained() -> None:
    recipe = rlc.load(QUICKSTART, set={"main.steps": 10, "learning_rate": 1e-4}, seed=5)
    assert recipe.check() == Diagnostics()
    plan = recipe.plan()
    assert plan.seed == 5
    values = plan.provenance
    assert values["stages.main.steps"] == "--set main.steps"
    explanation = recipe.explain()
    assert "10 steps, each 16 groups of 8" in str(explanation)
    assert "stage main: 10 steps on local" in explanation.text(full=True)
    assert explanation.to_dict()["stages"][0]["optimizer"]["learning_rate"] == 1e-4
    assert explanation.graph().startswith("flowchart")
    assert explanation.graph("dot").startswith("digraph")


def test_the_command_line_and_python_say_the_same() -> None:
    command = [str(Path(sys.executable).with_name("rlc")), "explain", str(QUICKSTART)]
    shown = subprocess.run(
        [*command, "--set", "main.steps=10"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == str(rlc.load(QUICKSTART, set=["main.steps=10"]).explain())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10, "10"),
        (1e-5, "1e-05"),
        (True, "true"),
        (None, "none"),
        ("rloo()", "rloo()"),
        ([1, "a"], "[1, a]"),
    ],
)
def test_values_are_written_as_a_recipe_has_them(value: Setting, text: str) -> None:
    assert written(value) == text


def test_what_a_recipe_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold"):
        rlc.load(QUICKSTART, set={"main.steps": object()})  # type: ignore[dict-item]


def test_errors_are_raised_with_their_places(tmp_path: Path) -> None:
    recipe = rlc.load(QUICKSTART, set={"main.steps": 0})
    assert [finding.code for finding in recipe.check()] == ["RL0202"]
    with pytest.raises(rlc.RecipeError, match="RL0202") as raised:
        recipe.plan()
    assert raised.value.diagnostics.has_errors
    explanation = recipe.explain()
    assert "error[RL0202]" in str(explanation)
    assert "RL0202" in explanation._repr_html_()
    assert "RL0202" in explanation._repr_markdown_()
    with pytest.raises(rlc.RecipeError):
        explanation.graph()


def test_a_recipe_that_is_not_there_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(rlc.RecipeError, match="no such file") as raised:
        rlc.load(tmp_path / "absent.rl")
    assert raised.value.diagnostics[0].code == "RL0001"
    with pytest.raises(rlc.Error, match="RL0002"):
        rlc.run(tmp_path)


@pytest.mark.engine
def test_a_path_is_run_with_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = rlc.run(str(QUICKSTART), set=TINY, seed=7)
    assert (summary.state, summary.folder.parent) == ("finished", Path("runs"))
    rlc.load(QUICKSTART, set=TINY).save("plan.json")
    for done in (QUICKSTART, Path("plan.json")):
        with pytest.raises(TypeError, match="decide what the path of a recipe means"):
            rlc.run(rlc.load_plan("plan.json") if done == QUICKSTART else done, seed=3)


def test_errors_reach_another_process() -> None:
    with pytest.raises(rlc.Error) as raised:
        rlc.load(QUICKSTART, set={"main.steps": 0}).plan()
    refused = EmitError.of_file("x.md", "gone", "put it back")
    for error in (raised.value, refused, RunError("full", "make room")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.hint) == (type(error), str(error), error.hint)


def test_a_service_that_has_not_the_model_is_refused() -> None:
    sudoku = RECIPES / "sudoku.rl"
    with pytest.raises(ServiceMismatchError):
        rlc.load(sudoku, service="local").plan()


class Tags(HTMLParser):
    """Which elements are open, and that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_shows_itself_in_a_notebook() -> None:
    recipe = rlc.load(RECIPES / "warm_start.rl")
    html = recipe._repr_html_()
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.seen.count("table") == 2
    assert "script" not in tags.seen
    plan = Tags()
    plan.feed(shown := recipe.plan()._repr_html_())
    assert plan.open == []
    assert plan.seen.count("tr") == 1 + len(recipe.plan().stages)
    assert "main" in shown
    markdown = recipe.explain()._repr_markdown_()
    assert "```mermaid\nflowchart" in markdown
    assert "| stage | kind |" in markdown


def test_it_shows_what_is_wrong_in_a_notebook() -> None:
    shown = rlc.load(RECIPES / "sudoku.rl", service="local")._repr_html_()
    assert shown.startswith("<pre>")
    assert "Qwen" in shown


def test_a_notebook_has_all_that_explain_says() -> None:
    swept = rlc.load(RECIPES / "learning_rates.rl").explain()
    for sweep in swept.sweeps:
        assert f"sweep {sweep.plan.name}" in swept.text(full=True)
        assert f"sweep {sweep.plan.name}" in swept._repr_html_()
        assert f"sweep {sweep.plan.name}" in swept._repr_markdown_()
    assert swept.sweeps


def test_what_a_name_holds_cannot_break_the_page(tmp_path: Path) -> None:
    odd = tmp_path / "a<i>b.rl"
    odd.write_text(QUICKSTART.read_text(encoding="utf-8"), encoding="utf-8")
    assert "a<i>b" not in rlc.load(odd)._repr_html_()


def test_a_plan_is_saved_loaded_and_explained(tmp_path: Path) -> None:
    recipe = rlc.load(QUICKSTART, set={"main.steps": 10})
    recipe.save(tmp_path / "plan.json")
    plan = rlc.load_plan(tmp_path / "plan.json")
    assert plan == recipe.plan()
    assert str(rlc.explain(plan)) == str(recipe.explain())


@pytest.mark.engine
def test_a_job_is_run_and_gone_on_with(tmp_path: Path) -> None:
    recipe = rlc.load(QUICKSTART, set=TINY)
    summary = rlc.run(recipe.plan(), run_dir=tmp_path / "run")
    assert summary.state == "finished"
    assert [stage.stage for stage in summary.stages] == ["main"]
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    assert json.loads(metrics.splitlines()[-1])["step"] == 1
    tags = Tags()
    tags.feed(summary._repr_html_())
    assert tags.open == []
    assert tags.seen.count("tr") == 2
    assert summary.history["main"]["step"] == [1]
    assert summary.history == rlc.history(tmp_path / "run")
    again = rlc.resume(tmp_path / "run")
    assert again.state == "finished"
    with again.model() as model:
        assert model.name == summary.weights == f"{tmp_path / 'run'}@main:1"
        assert len(model.sample("2 + 3 = ?", count=2)) == 2


@pytest.mark.engine
def test_a_run_that_fails_says_how_to_continue_it(tmp_path: Path) -> None:
    class Impatient(Observer):
        def step(self, step: int, metrics: Mapping[str, Any]) -> None:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough") as raised:
        rlc.run(rlc.load(QUICKSTART, set=TINY), tmp_path / "run", observer=Impatient())
    (note,) = raised.value.__notes__
    assert f"rlc.resume({str(tmp_path / 'run')!r})" in note
    assert rlc.resume(tmp_path / "run").state == "finished"


@pytest.mark.engine
def test_it_runs_where_a_loop_runs_already(tmp_path: Path) -> None:
    """As in a notebook, whose cells are run by one."""

    async def cell() -> str:
        return rlc.run(rlc.load(QUICKSTART, set=TINY), run_dir=tmp_path / "run").state

    assert asyncio.run(cell()) == "finished"


def test_help_shows_every_name_with_its_example() -> None:
    text = pydoc.plain(pydoc.render_doc(rlc))
    assert "recipe = rlc.load(" in text.split("PACKAGE CONTENTS")[0]
    for name in rlc.__all__:
        assert re.search(rf"^    (class )?{name}\(", text, re.MULTILINE), name
    shown = re.findall(r"Example::\n *\n((?: {12}.+\n)+)", text)
    assert len(shown) == len([n for n in rlc.__all__ if inspect.isfunction(getattr(rlc, n))])
    for example in shown:
        tree = ast.parse(textwrap.dedent(example))
        used = {node.attr for node in ast.walk(tree) if is_of_rlc(node)}
        assert used
        assert used <= set(rlc.__all__)


def is_of_rlc(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rlc"


@pytest.mark.parametrize("name", rlc.__all__)
def test_docstrings_name_every_argument_and_attribute(name: str) -> None:
    thing = getattr(rlc, name)
    text = inspect.getdoc(thing) or ""
    if inspect.isfunction(thing):
        assert text.startswith(("Return ", "Run ", "Continue "))
        names = list(inspect.signature(thing).parameters)
        names = names if len(names) > 1 else []
    else:
        names = [item.name for item in fields(thing)] if has(thing) else []
        text = "\n".join(inspect.getdoc(one) or "" for one in reversed(thing.__mro__[:-1]))
        for method in vars(thing).values():
            if inspect.isfunction(method) and not method.__name__.startswith("_"):
                assert inspect.getdoc(method), method
    assert names == [
        name for name in re.findall(r"^    (\w+): ", text, re.MULTILINE) if name in names
    ]


def test_importing_it_is_cheap() -> None:
    code = (
        "import sys; before = set(sys.modules); import rlc; "
        "print(sorted(set(sys.modules) - before)); assert 'run' in dir(rlc)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(ast.literal_eval(result.stdout)) <= {"rlc", "rlc.doors", "rlc.version", "__future__"}


def test_no_room_hides_a_function() -> None:
    """Importing a module `rlc.run` would put it in the place of the function."""
    assert not [name for name in rlc.__all__ if find_spec(f"rlc.{name}")]


def test_what_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = rlc.train  # type: ignore[attr-defined]
    assert set(rlc.__all__) <= set(dir(rlc))
    assert all(callable(getattr(rlc, name)) for name in rlc.__all__)
