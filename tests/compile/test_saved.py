"""Saved plans: run as they are, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from paths import RECIPES, ROOT
from plan_recipes import recipe

import rlc
from rlc.compile.saved import PlanFileError, load_plan, read_plan, stale_lines
from rlc.plan.codec import plan_hash

pytestmark = pytest.mark.slow

SOUND = [*sorted(RECIPES.rglob("*.rl")), *sorted((ROOT / "tests/check/sound").glob("*.rl"))]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "recipes" / "quick.rl"
    path.parent.mkdir()
    path.write_text(recipe("quickstart"), encoding="utf-8")
    return path


@pytest.fixture
def saved(tmp_path: Path, source: Path) -> Path:
    path = tmp_path / "plan.json"
    rlc.load(source, set={"main.steps": 7}, seed=3).save(path)
    return path


def edit(path: Path, change: Any) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_saved_plan_is_the_plan(saved: Path, source: Path) -> None:
    plan = rlc.load(source, set={"main.steps": 7}, seed=3).plan()
    again = load_plan(saved)
    assert again == plan
    assert again.provenance == plan.provenance
    data = json.loads(saved.read_text(encoding="utf-8"))
    assert data["plan_hash"] == plan_hash(plan)
    assert data["made_from"]["recipe"] == "recipes/quick.rl"
    assert [path.name for path in saved.parent.iterdir() if path.name.startswith(".")] == []


def test_it_is_found_from_any_folder(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_plan("../plan.json").seed == 3


def test_an_edited_plan_is_refused_with_what_was_edited(saved: Path) -> None:
    edit(saved, lambda data: data["stages"][0].update(steps=9_999))
    with pytest.raises(PlanFileError, match="was edited") as refused:
        load_plan(saved)
    assert "main.steps" in str(refused.value)
    assert "9_999 → 7" in str(refused.value)
    assert refused.value.hint


def test_an_edited_hash_is_refused(saved: Path) -> None:
    edit(saved, lambda data: data.update(plan_hash="0" * 64))
    with pytest.raises(PlanFileError, match="its hash is no longer that of its content"):
        load_plan(saved)


def test_a_stale_plan_is_refused_with_what_changed(saved: Path, source: Path) -> None:
    source.write_text(
        recipe("quickstart").replace("max_tokens = 16", "max_tokens = 32"), encoding="utf-8"
    )
    with pytest.raises(PlanFileError, match="is stale") as refused:
        load_plan(saved)
    assert "main.sampling.max_tokens" in str(refused.value)
    assert "16 → 32" in str(refused.value)
    assert "--set main.steps=7 --seed 3" in str(refused.value.hint)
    assert read_plan(saved).plan.seed == 3  # it can still be looked at


def test_what_changes_nothing_makes_no_plan_stale(saved: Path, source: Path) -> None:
    source.write_text("# moved down\n\n" + recipe("quickstart"), encoding="utf-8")
    assert load_plan(saved).seed == 3
    assert stale_lines(read_plan(saved)) == []


def test_a_recipe_with_errors_makes_its_plan_stale(saved: Path, source: Path) -> None:
    source.write_text("train main {", encoding="utf-8")
    with pytest.raises(PlanFileError, match="has errors by now"):
        load_plan(saved)


def test_a_plan_outlives_its_recipe(saved: Path, source: Path) -> None:
    source.unlink()
    assert load_plan(saved).seed == 3


def test_a_rehearsal_can_be_saved(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    rlc.load(source, rehearse=True).save(path)
    assert load_plan(path) == rlc.load(source, rehearse=True).plan()


@pytest.mark.parametrize("version", [1, 99])
def test_a_plan_of_another_version_is_stale(saved: Path, version: int) -> None:
    edit(saved, lambda data: data.update(schema_version=version))
    with pytest.raises(PlanFileError, match=f"schema_version is {version}") as refused:
        read_plan(saved)
    again = f"rlc explain {saved.parent / 'recipes/quick.rl'} --set main.steps=7"
    assert again in str(refused.value.hint)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "a plan is a JSON object"),
        ("{", "is not JSON"),
        ("{}", "has no schema_version"),
        ('{"schema_version": 3}', "is not a plan"),
        ('{"schema_version": 3, "made_from": 3}', "made_from is not what rlc writes"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanFileError, match=words):
        read_plan(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot read"):
        load_plan(tmp_path / "plan.json")


def test_a_place_that_cannot_be_written_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot write"):
        rlc.load(source).save(tmp_path / "absent" / "plan.json")


def test_a_recipe_whose_name_is_no_text_is_refused(source: Path, tmp_path: Path) -> None:
    named = source.rename(source.with_name("\udcff.rl"))
    with pytest.raises(PlanFileError, match="cannot write"):
        rlc.load(named).save(tmp_path / "plan.json")


def test_a_plan_without_a_hash_can_be_read_but_not_run(saved: Path) -> None:
    """As that of a run folder, whose hash is in its journal."""
    edit(saved, lambda data: [data.pop("plan_hash"), data.pop("made_from")])
    assert read_plan(saved).plan.seed == 3
    with pytest.raises(PlanFileError, match="has no hash"):
        load_plan(saved)


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_every_recipe_is_the_same_after_it_was_saved(path: Path, tmp_path: Path) -> None:
    """Its values, of the same types, and their origins, its hash, what is explained, its price."""
    source = rlc.load(path)
    if (plan := source.compile().plan) is None:
        pytest.skip("a library")
    source.save(tmp_path / "plan.json")
    again = evolve(load_plan(tmp_path / "plan.json"), recipe=plan.recipe)
    assert (again, repr(again)) == (plan, repr(plan))
    assert again.provenance == plan.provenance
    assert plan_hash(again) == plan_hash(plan)
    one, other = rlc.explain(plan), rlc.explain(again)
    assert other.text() == one.text()
    assert other.text(full=True) == one.text(full=True)
    assert json.dumps(other.to_dict()) == json.dumps(one.to_dict())
