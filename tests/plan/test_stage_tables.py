"""What differs by the kind of a stage stands in tables, which are whole; nothing else asks."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
from attrs import evolve, fields
from paths import ROOT
from plan_recipes import planned, recipe

from rlc.plan import sources, stages
from rlc.plan.sources import DATA
from rlc.plan.stages import OBJECTIVES, SOURCES, Evaluation, PolicyGradient, StagePlan, Table
from rlc.records import frozen

# Rooms that have tables, and the modules with tables of data, by its class.
WITH_TABLES = (
    "rlc.plan.graph",
    "rlc.pricing.tokens",
    "rlc.pricing.asked",
    "rlc.pricing.asked",
    "rlc.pricing.quantities",
    "rlc.pricing.assumptions",
    "rlc.compile.variants",
    "rlc.explanation.sizes",
    "rlc.explanation.stages",
    "rlc.explanation.summary",
    "rlc.report.figures",
    "rlc.emit.script.unsupported",
)
CLASSES = {
    *(kind.__name__ for kind in (*OBJECTIVES, *SOURCES, *DATA.values())),
    *(kind.__name__ for kind in (*get_args(StagePlan), sources.Data, sources.FileData)),
    "EpisodeData",
    "PreferenceLoss",
}
# Where a class of data may be asked for: its own module, and what only one kind has.
MAY_ASK = {
    "rlc/plan/stages.py",
    "rlc/plan/sources.py",
}
MOST_ASKED = 14  # questions for the class of data elsewhere; of stages and objectives: none


def tables() -> list[Table[Any]]:
    for module in WITH_TABLES:
        importlib.import_module(module)
    return Table.tables


def test_every_table_has_an_entry_for_every_class() -> None:
    assert len(tables()) >= len(WITH_TABLES)
    for table in tables():
        kinds: list[Any] = [*OBJECTIVES] if table.by == "objective" else [*SOURCES]
        for kind in kinds:
            table.of(kind)


def test_a_class_without_an_entry_is_an_error() -> None:
    table = Table({PolicyGradient: 1})
    with pytest.raises(KeyError, match="Likelihood"):
        table.of(stages.Likelihood)
    Table.tables.remove(table)


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    """The modules that have a word of what is looked for below, parsed."""
    asking = re.compile(rf"\b({'|'.join(CLASSES)})\b|stage\.kind")
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "rlc").rglob("*.py"))}
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(text))
        for path, text in texts.items()
        if "templates" not in path.parts and asking.search(text)
    ]


@pytest.fixture(autouse=True, scope="module")
def _trees_are_let_go() -> Iterator[None]:
    """Each garbage collection would visit their objects."""
    yield
    _trees.cache_clear()


@cache
def _questions() -> list[tuple[str, str]]:
    return list(_asked())


def _asked() -> Iterator[tuple[str, str]]:
    """The places that ask which class a stage, a source, an objective or data has."""
    for name, tree in _trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name("isinstance"), args=[_, classes]):
                    asked = set(re.findall(r"\w+", ast.unparse(classes))) & CLASSES
                    if asked and name not in MAY_ASK:
                        yield name, ", ".join(sorted(asked))


def test_nothing_asks_a_stage_for_its_class() -> None:
    data = {kind.__name__ for kind in DATA.values()} | {"FileData", "EpisodeData", "Data"}
    found = [(name, asked) for name, asked in _questions() if not set(asked.split(", ")) <= data]
    assert found == []


def test_few_ask_data_for_its_class() -> None:
    assert len(_questions()) <= MOST_ASKED, _questions()


def test_nothing_compares_the_kind_of_a_stage_with_a_word() -> None:
    words = {kind.word for kind in OBJECTIVES} | {Evaluation.kind}
    found = []
    for name, tree in _trees():
        for node in ast.walk(tree):
            match node:
                case ast.Compare(ast.Attribute(ast.Name("stage"), "kind"), _, [right, *_]):
                    if any(f"'{word}'" in ast.unparse(right) for word in words):
                        found.append(f"{name}: {ast.unparse(node)}")
    assert found == []


@frozen
class Imagination(stages.PolicyGradient):
    """An objective that nobody has: what another one would have to add."""

    word: ClassVar[str] = "imagine"


def test_a_made_up_objective_touches_few_modules() -> None:
    """The modules that a new objective has to enter: its class, its declaration and fields, and
    every table by objective."""
    entered = {
        module
        for module in WITH_TABLES
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Table) and value.by == "objective"
    }
    runtime = Path(ROOT / "rlc/runtime/stages/opening.py").read_text(encoding="utf-8")
    assert "OPENERS: Table" in runtime
    added = entered | {"rlc.runtime.stages.opening"}
    added |= {"rlc.plan.stages", "rlc.catalog.declarations"}
    assert len(added) <= 12, sorted(added)


def test_an_objective_like_another_needs_no_entry() -> None:
    (stage,) = planned(recipe("quickstart")).trainings
    known = {one.name: getattr(stage.objective, one.name) for one in fields(PolicyGradient)}
    other = evolve(stage, objective=Imagination(**known))
    for table in tables():
        assert table[other] == table[stage]


# Where a setting of sampling is that is its own: what recipes, commands and requests call it, the
# record, and what samples. Other trainers' options, scripts without rlc and rules on what a value
# means come on top, where a setting has such.
ON_TOP = ("rlc/imports/", "rlc/emit/", "rlc/check/rules/", "rlc/service/conform/")


def test_a_setting_of_sampling_stands_in_few_files() -> None:
    named = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rlc").rglob("*.py")
        if re.search(r"\btop_p\b", path.read_text(encoding="utf-8"))
    }
    assert len({name for name in named if not name.startswith(ON_TOP)}) <= 8, sorted(named)
