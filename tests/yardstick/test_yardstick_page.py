"""The table of `docs/yardstick.md` is true: its files are there, short, without findings."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from paths import RECIPES, ROOT
from yardstick import YARDSTICK

import rlc
from rlc.cli.main import main

PAGE = ROOT / "docs" / "yardstick.md"
ROW = re.compile(r"^\| (?P<job>[^|]+) \| `(?P<file>\w+)` \| (?P<lines>\d+) \|", re.M)
FILES = sorted({row["file"] for row in ROW.finditer(PAGE.read_text("utf-8"))})
MOST = 40
# Warnings about what the jobs are, as they are written elsewhere.
FINDINGS = {
    "decisions": ["RL0327"],  # a few rows in the place of many
    "gem_deepscaler": ["RL0414"],  # a history of one turn
    "harbor_distillation": ["RL0407"],  # a context that long episodes outgrow
    "harbor_rl": ["RL0407"],
    "openreward": ["RL0413", "RL0409"],  # a clip that never acts, a temperature of 0.7
    "sdft_continual": ["RL0327"],  # a few rows in the place of many
    "shorter": ["RL0327"],  # one prompt, over and over
    "text_arena": ["RL0425"],  # the two seats of a match are compared
    "verifiers_rl": ["RL0510"],  # a package that is not here
}


def path_of(name: str) -> Path:
    here = YARDSTICK / f"{name}.rl"
    return here if here.exists() else RECIPES / f"{name}.rl"


def test_the_table_counts_the_lines_of_its_files() -> None:
    """``RLC_UPDATE_GOLDEN=1`` writes them."""

    def counted(row: re.Match[str]) -> str:
        job, _, _ = path_of(row["file"]).read_text("utf-8").partition("\n# `rlc test`")
        lines = len(job.splitlines())  # without its tests
        assert lines <= MOST, f"{row['file']} has {lines} lines"
        return f"| {row['job']} | `{row['file']}` | {lines} |"

    text = PAGE.read_text("utf-8")
    counted_text = ROW.sub(counted, text)
    if os.environ.get("RLC_UPDATE_GOLDEN"):
        PAGE.write_text(counted_text, "utf-8")
    else:
        assert counted_text == text


def test_the_table_names_every_file() -> None:
    assert {path.stem for path in YARDSTICK.glob("*.rl")} <= set(FILES)


def test_the_page_names_every_recipe_of_the_cookbook() -> None:
    """The programs that train, by their names: the others make data, play, or measure."""
    package = find_spec("tinker_cookbook")
    assert package is not None
    assert package.origin is not None
    recipes, text = Path(package.origin).with_name("recipes"), PAGE.read_text("utf-8")
    programs = {
        ".".join(path.relative_to(recipes).with_suffix("").parts)
        for path in recipes.rglob("*.py")
        if re.search(r"train|basic|loop|pipeline|distillation|teacher|reasoning|sweep", path.stem)
        and "__main__" in path.read_text("utf-8")
    }
    programs -= {"vlm_classifier.eval_sweep"}
    assert len(programs) > 30
    assert not {name for name in programs if f"`{name}" not in text}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_no_findings_and_is_explained(name: str) -> None:
    recipe = rlc.load(str(path_of(name)))
    assert [finding.code for finding in recipe.check()] == FINDINGS.get(name, [])
    assert recipe.plan().stages[0].name in recipe.explain().text()
    assert main(["fmt", "--check", str(path_of(name))]) == 0
