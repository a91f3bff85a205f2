"""Audits in the process of a test: to start one for each would take the time of all of them."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from attrs import evolve

from rlc.catalog import audit_key
from rlc.plan import EnvPlan, Plan
from rlc.proof import auditing
from rlc.proof.auditing import EnvironmentAudit


def audit_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make audits without a process of their own."""

    def audited(plan: Plan, env: EnvPlan, seconds: float) -> EnvironmentAudit:
        with tempfile.TemporaryDirectory() as folder:
            made = asyncio.run(
                auditing._audited(plan, env.name, 10 * seconds, Path(folder, "latest"))
            )
        return evolve(made, key=audit_key(env, plan.recipe) if made.key else "")

    monkeypatch.setattr(auditing, "_in_process", audited)
