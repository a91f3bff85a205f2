"""What a plan's service needs is said before anything is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from paths import RECIPES

from rlc.compile.recipe import load
from rlc.plan.records import Plan
from rlc.service.hosted.connect import open_service, require_service, smaller_contexts
from rlc.service.interface import ServiceError


def plan(name: str) -> Plan:
    compiled = load(RECIPES / f"{name}.rl")
    assert compiled.plan
    return compiled.plan


def test_the_embedded_engine_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    require_service(plan("quickstart"))


@pytest.mark.engine
def test_hosted_tinker_without_a_key_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = plan("sudoku")
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # the SDK keeps credentials there
    monkeypatch.chdir(tmp_path)  # and .env would be here
    with pytest.raises(ServiceError, match=r"needs TINKER_API_KEY.*--rehearse"):
        require_service(hosted)


def test_a_light_install_says_what_to_add(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else pytest.__spec__
    )
    with pytest.raises(ServiceError, match=r"needs torch: pip install 'rlc\[local,gem\]'"):
        require_service(plan("quickstart"))
    with pytest.raises(ServiceError, match="needs torch"):  # as `rlc chat` opens it
        open_service("local", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ServiceError, match=r"the Tinker service needs.*rlc\[tinker,gem\]"):
        require_service(plan("sudoku"))


def test_a_context_that_the_plan_does_not_know_is_the_server_s() -> None:
    job = plan("sudoku")
    model = evolve(job.stages[0].model, base="vendor/New", context=None)
    alone = evolve(job, stages=(evolve(job.stages[0], model=model),))
    server: Any = SimpleNamespace(
        model_name="vendor/New", trainable=None, sampleable=None, max_context_length=50_000
    )
    assert smaller_contexts(alone, [server], "a server") == {"vendor/New": 50_000}
    known = evolve(model, context=40_000)
    alone = evolve(job, stages=(evolve(job.stages[0], model=known),))
    assert smaller_contexts(alone, [server], "a server") == {}


def test_one_job_runs_on_one_service() -> None:
    job, hosted = plan("quickstart"), plan("sudoku").stages[0]
    with pytest.raises(ServiceError, match="not on local and tinker"):
        require_service(evolve(job, stages=(*job.stages, hosted)))
