"""On the embedded engine, too: to the bit, from the command line, with `--only` and `--from`."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import TINY, assert_same, block, train

from rlc.cli.main import main

pytestmark = pytest.mark.plain
STAGES = TINY + block("eval", "before", {"model": "policy", "env": "guess", "tasks": "2"})
STAGES = STAGES.replace("tasks = 2", "tasks = 2  sampling = sample(max_tokens = 8)")
STAGES += train("first", steps="2") + train("second", model="first", steps="2")


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.rl").write_text(STAGES)


@pytest.mark.engine
def test_a_longer_run_ends_with_the_bits_of_a_fresh_one() -> None:
    Path("recipe.rl").write_text(TINY + train(steps="2", batch="groups(2, group_size = 2)"))
    for run, options in {
        "short": [],
        "long": ["--set", "main.steps=3"],
        "fresh": ["--set", "main.steps=3", "--fresh"],
    }.items():
        assert main(["run", "recipe.rl", "--quiet", "--run-dir", f"runs/{run}", *options]) == 0
    assert_same(Path("runs/long"), Path("runs/fresh"))
    states = [next(Path("runs", run).rglob("main-000003.safetensors")) for run in ("long", "fresh")]
    assert states[0].read_bytes() == states[1].read_bytes()


def test_a_part_of_a_recipe_runs_on_what_others_have_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "recipe.rl", "--only", "second"]) == 1
    needed = "`second` needs the weights that `first` leaves, and no run has finished it exactly"
    assert needed in capsys.readouterr().err
    assert not Path("runs").exists()
    assert main(["run", "recipe.rl", "--only", "first", "--run-dir", "runs/one"]) == 0
    assert main(["run", "recipe.rl", "--only", "second", "--fresh"]) == 1
    refused = capsys.readouterr().err
    assert "and --fresh takes nothing from other runs" in refused
    assert "leave --fresh out" in refused
    assert main(["run", "recipe.rl", "--from", "second", "--run-dir", "runs/two"]) == 0
    printed = capsys.readouterr().out
    assert "reused: all 2 steps of `first` from runs/one, which saves" in printed
    assert "before" not in printed
    assert main(["explain", "recipe.rl"]) == 0
    explained = " ".join(capsys.readouterr().out.split())
    assert "all 2 steps of `second` from runs/two, which saves" in explained
    assert "`before`" not in explained
    for wrong in (["--only", "first", "--from", "second"], ["--from", "third"]):
        assert main(["run", "recipe.rl", *wrong]) in (1, 2)
        assert not list(Path("runs").glob("recipe-*"))
