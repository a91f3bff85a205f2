"""Every recipe of the project, rehearsed: its own graph and environments on the tiny model.

What loads from a hub gets rows of our own; what asks a server, one on loopback. The recipes of
OpenReward's and the cookbook's are rehearsed with their sources, by tests of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from passages import passage_server
from paths import RECIPES
from run_support import metrics, run_new, shortened
from spending import bounded

from rlc.compile.recipe import compile_source
from rlc.compile.variants import rehearse
from rlc.lang.source import Source
from rlc.runtime.start import require_runnable

pytestmark = [pytest.mark.plain, pytest.mark.server]

ELSEWHERE = {
    "cookbook_arithmetic": "test_gem_tools_run.py",
    "python_environment": "test_gem_tools_run.py",
    "openreward": "test_openreward_runs.py",
    "openreward_games": "test_openreward_runs.py",
    "openreward_reverse": "test_openreward_runs.py",
    "quickstart": "test_job.py",
    "spell_backward": "test_job.py",
    "sudoku": "tests/cli/test_run.py",
    "harbor": "test_framework_runs.py",
    "openenv": "test_openenv.py",
    "mcp_tools": "test_framework_runs.py",
    "verifiers": "test_framework_runs.py",
}
OWN_LOSS = "own_loss"  # which only the engine computes
NAMES = sorted({path.stem for path in RECIPES.glob("*.rl")} - ELSEWHERE.keys() - {OWN_LOSS})
HERE = [*NAMES, pytest.param(OWN_LOSS, marks=pytest.mark.engine)]
SUMS = [{"problem": f"{n} + {n}?", "answer": str(2 * n)} for n in range(1, 40)]


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets: Any = importlib.import_module("datasets")
    made = datasets.Dataset.from_list(SUMS)
    for module in ("gem.envs.math_env", "gem.envs.qa_env"):
        monkeypatch.setattr(importlib.import_module(module), "load_dataset", lambda *_: made)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with passage_server() as url:
        yield url


@pytest.mark.parametrize("name", HERE)
def test_a_recipe_rehearses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, name: str
) -> None:
    file = RECIPES / f"{name}.rl"
    text = file.read_text(encoding="utf-8").replace("http://127.0.0.1:8000/retrieve", server)
    plan = compile_source(Source(str(file), text)).plan
    assert plan is not None
    monkeypatch.chdir(tmp_path)  # data and modules are found beside the recipe
    job = shortened(rehearse(plan))
    require_runnable(job)
    with bounded(job):
        assert run_new(tmp_path / "run", job).state == "finished"
    for stage in job.stages:
        found = metrics(tmp_path / "run", stage.name)
        assert found, f"nothing is known of {stage.name}"
