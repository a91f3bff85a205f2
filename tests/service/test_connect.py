"""What a plan's service needs is said before anything is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from attrs import evolve

from rlc.plan.compile import load
from rlc.plan.tree import Plan
from rlc.service.connect import require_service
from rlc.service.errors import ServiceError

RECIPES = Path(__file__).parents[2] / "recipes"


def plan(name: str) -> Plan:
    compiled = load(RECIPES / f"{name}.rl")
    assert compiled.plan
    return compiled.plan


def test_the_embedded_engine_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    require_service(plan("quickstart"))


@pytest.mark.parametrize(("key", "said"), [(None, "needs TINKER_API_KEY"), ("tml-x", "cannot")])
def test_hosted_tinker_is_refused_by_name(
    key: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ServiceError, match=said) as refusal:
        require_service(plan("sudoku"))
    assert "--rehearse" in str(refusal.value)


def test_a_light_install_says_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else 1)
    with pytest.raises(ServiceError, match=r"needs torch: pip install 'rlc\[local,gem\]'"):
        require_service(plan("quickstart"))


def test_one_job_runs_on_one_service() -> None:
    job, hosted = plan("quickstart"), plan("sudoku").stages[0]
    with pytest.raises(ServiceError, match="not on local and tinker"):
        require_service(evolve(job, stages=(*job.stages, hosted)))
