"""The page about own rewards is true: it shows the files of its examples, which train."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from rlc.cli.main import main

PAGE = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES = ROOT / "examples" / "rewards"
PARTS = {
    "letters": {"share"},
    "shapes": {"share", "shape", "shape/one_word", "shape/plain", "length"},
    "chain": {"judged"},
    "shaped": {"share"},
}


def test_it_shows_the_files_of_the_examples() -> None:
    there = {path.name: path.read_text("utf-8") for path in EXAMPLES.iterdir() if path.is_file()}
    assert there == FILES


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(EXAMPLES, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path / "project"
    for path in EXAMPLES.glob("*.py"):  # other tests have modules of these names
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", PARTS)
def test_its_recipes_have_no_findings(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{name}.rl"]) == 0
    assert "no findings" in capsys.readouterr().out


def test_its_sum_is_what_explain_prints(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "shapes.rl", "--full"]) == 0
    (shown,) = re.findall(r"^```\n(  reward of letters\n.*?)```", PAGE, re.DOTALL | re.M)
    assert shown in capsys.readouterr().out


@pytest.mark.engine
@pytest.mark.parametrize("name", PARTS)
def test_its_recipes_train(name: str, project: Path) -> None:
    command = ["run", f"{name}.rl", "--run-dir", "run", "--set", "main.steps=2"]
    assert main(command) == 0
    lines = (project / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1])
    (env,) = {key.split("/")[1] for key in last if key.startswith("env/")}
    assert {key.removeprefix(f"env/{env}/") for key in last if key.startswith("env/")} == PARTS[
        name
    ]
    assert last["rollouts/failed"] == 0
