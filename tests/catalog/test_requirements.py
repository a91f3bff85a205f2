"""What a plan needs is one list: explained, tried before a run, and taken along by a job."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import RECIPES
from plan_recipes import recipe

from rlc.catalog.packages import name_of
from rlc.catalog.requirements import Requirement, requirements, service_packages
from rlc.compile.recipe import compile_source, load
from rlc.emit.job.needs import commands, extras, packages, variables
from rlc.explanation.job import needed
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable

ALL = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.rl"))


def plan_of(name: str) -> Plan | None:
    return load(RECIPES / name).plan  # None of what is to be imported


def of_kind(plan: Plan, kind: str) -> Iterator[Requirement]:
    return (one for one in requirements(plan) if one.kind == kind)


@pytest.mark.parametrize("name", ALL)
def test_what_is_explained_is_what_is_needed(name: str) -> None:
    if (plan := plan_of(name)) is None:
        return
    text = "\n".join(needed(plan))
    services = of_kind(plan, "service")
    covered = {name_of(one) for each in services for one in service_packages(each.name)}
    for one in requirements(plan):
        if one.kind == "package" and name_of(one.name) in covered:
            continue
        assert one.kind == "service" or one.name in text, one
    assert len(needed(plan)) == len(set(needed(plan)))


@pytest.mark.parametrize("name", ALL)
def test_a_job_takes_along_what_is_needed(name: str) -> None:
    if (plan := plan_of(name)) is None:
        return
    found, taken = extras([plan], sweeps=False), " ".join(packages([plan], ()))
    for one in of_kind(plan, "package"):
        known = {other.extra for other in of_kind(plan, "package") if other.name == one.name}
        assert known & {*found} or one.name.split("[")[0] in taken, one
    assert {one.name for one in of_kind(plan, "key")} == {*variables(plan)}
    assert {one.name for one in of_kind(plan, "command")} == {*commands(plan)}


@pytest.mark.parametrize("name", ALL)
def test_each_package_is_looked_for_before_a_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (plan := plan_of(name)) is None:
        return
    monkeypatch.chdir(RECIPES.parent)
    monkeypatch.setattr("os.path.isfile", lambda _: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(RunError, match="packages are missing") as refused:
        require_runnable(plan)
    for one in of_kind(plan, "package"):
        assert name_of(one.name) in str(refused.value)
        assert (one.extra or one.name) in str(refused.value.hint)


@pytest.mark.parametrize("name", ALL)
def test_each_file_is_looked_for_before_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if (plan := plan_of(name)) is None or not [*of_kind(plan, "file")]:
        return
    monkeypatch.setattr("os.path.isfile", lambda _: False)
    with pytest.raises(RunError, match="there is no file") as refused:
        require_runnable(plan)
    for one in of_kind(plan, "file"):
        assert Path(one.name).name in str(refused.value)


def test_every_requirement_says_what_needs_it() -> None:
    text = recipe("quickstart").replace(
        'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()',
        "env guess = problems(gsm8k, grader = math)",
    )
    plan = compile_source(Source("r.rl", text)).plan
    assert plan is not None
    found = {(one.kind, one.name): one.path for one in requirements(plan)}
    at = "stages.main.envs.guess"
    assert found["package", "datasets"] == f"{at}.id"
    assert found["package", "math-verify[antlr4_13_2]"] == f"{at}.graders.correct"
    assert found["service", "local"] == "stages.main.model"


def test_what_is_held_out_needs_its_packages_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = """\
model policy { base = "tiny" }
sft warm {
  model = policy  data = chats("a.jsonl")  heldout = chats("b.parquet", split = last(10%))
  steps = 1  optimizer = adam(1e-3)
}
"""
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.parquet"):
        (tmp_path / name).touch()
    plan = compile_source(Source("r.rl", recipe)).plan
    assert plan is not None
    found = {(one.name, one.path) for one in of_kind(plan, "package")}
    assert ("pyarrow", "stages.warm.heldout.path") in found
