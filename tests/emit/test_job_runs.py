"""Jobs that are run: as `rlc run` would have, in an environment of their own, moved and killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import processes
import pytest
from http_testing import running_server
from paths import RECIPES

import rlc.service.engine  # noqa: F401 (before anything imports torch)
from rlc.api import Recipe
from rlc.emit.job.folder import emit_job
from rlc.runtime.start import run_plan

pytestmark = [pytest.mark.plain, pytest.mark.slow]

# A stage of each kind, a judge, code of one's own.
SERVED = ("warm_start", "preferences", "judged", "python_environment")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with running_server(tmp_path / "served", models={"tiny": "tiny"}) as url:
        yield url


def metrics_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.server
@pytest.mark.parametrize("name", SERVED)
def test_a_job_gives_the_rewards_of_the_run(
    name: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rehearsed, on a server, through the SDK."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    asked = Recipe(str(RECIPES / f"{name}.rl"), rehearse=True, service="tinker")
    compiled = asked.compile()
    assert compiled.plan is not None
    emit_job(compiled, tmp_path / "job", asked.options())
    log = tmp_path / "log"
    log.mkdir()
    command = [str(tmp_path / "job" / "run.py"), "--here", "--quiet", "--base-url", server]
    processes.run_script(command, log, {"TINKER_API_KEY": "tml-local"})
    run_plan(compiled.plan, tmp_path / "run", base_url=server)
    ours, theirs = metrics_of(tmp_path / "run"), metrics_of(tmp_path / "job" / "run")
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert (one["stage"], one["step"]) == (other["stage"], other["step"])
        for key, value in one.items():
            if key.startswith("reward"):
                assert other[key] == pytest.approx(value, abs=1e-9)
            elif key.startswith("loss"):  # what is computed at once depends on the moment
                assert other[key] == pytest.approx(value, rel=1e-4, abs=1e-4)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with what rlc needs, and without rlc: that comes as a wheel."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    here = Path(sysconfig.get_paths()["purelib"])
    (there,) = folder.glob("lib/python*/site-packages")
    (there / "needs.pth").write_text(f"{here}\n", encoding="utf-8")
    return folder / "bin" / "python"


def run_bare(python: Path, job: Path, *options: str) -> subprocess.Popen[str]:
    """Run a job as on a machine that knows nothing of this tree."""
    environment = {key: v for key, v in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        [str(python), str(job / "run.py"), "--here", *options],
        cwd=job.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.engine
@pytest.mark.kill
def test_a_job_runs_in_a_fresh_environment_and_goes_on_where_it_is_moved(
    bare: Path, tmp_path: Path
) -> None:
    asked = Recipe(
        str(RECIPES / "python_environment.rl"),
        ("main.steps=4", "main.batch=groups(2, group_size = 4)"),
    )
    compiled = asked.compile()
    assert compiled.plan is not None
    job = tmp_path / "first" / "job"
    emit_job(compiled, job, asked.options())
    wheel = next((job / "wheels").iterdir())
    pip = [sys.executable, "-m", "pip", "--python", str(bare)]
    install = [*pip, "install", "-q", "--no-deps", "--no-index", "--force", "--no-compile"]
    subprocess.run([*install, f"{wheel}"], check=True, env={**os.environ, "PYTHONPATH": ""})

    process = run_bare(bare, job)
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if "main 2/4" in line:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    assert "main 2/4" in told, told
    (tmp_path / "first").rename(tmp_path / "second")
    moved = run_bare(bare, tmp_path / "second" / "job")
    told, _ = moved.communicate()
    assert moved.returncode == 0, told
    assert "going on after step" in told
    assert "run again" not in told

    run_plan(compiled.plan, tmp_path / "whole")
    ours, theirs = (metrics_of(tmp_path / at) for at in ("second/job/run", "whole"))
    assert [one["reward/mean"] for one in ours] == [one["reward/mean"] for one in theirs]
    assert len(ours) == 4


@pytest.mark.engine
def test_a_sweep_runs_as_a_job(tmp_path: Path) -> None:
    recipe = tmp_path / "project" / "rates.rl"
    recipe.parent.mkdir()
    text = (RECIPES / "spell_backward.rl").read_text(encoding="utf-8")
    sweep = "sweep rates { of = main  over = { main.optimizer.learning_rate = [1e-3, 3e-3] } }\n"
    recipe.write_text(f"{text}\n{sweep}", encoding="utf-8")
    asked = Recipe(str(recipe), rehearse=True)
    compiled = asked.compile()
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    job = tmp_path / "job"
    emit_job(compiled, job, asked.options(), compiled.sweeps[0])
    shutil.rmtree(recipe.parent)
    processes.run_script([str(job / "run.py"), "--here", "--quiet"], tmp_path, {})
    assert len(list((job / "run" / "trials").iterdir())) == 2
    moved = job.rename(tmp_path / "moved")
    processes.run_script([str(moved / "run.py"), "--here", "--quiet"], tmp_path, {})
