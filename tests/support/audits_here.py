"""Audits in the process of a test: to start one for each would take the time of all of them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from rlc.catalog import audit_key
from rlc.plan import EnvPlan, Plan
from rlc.proof import auditing
from rlc.proof.audit_findings import EnvironmentAudit


def audit_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make audits without a process of their own."""

    def audited(
        plan: Plan, envs: Sequence[EnvPlan], seconds: float
    ) -> tuple[EnvironmentAudit, ...]:
        with tempfile.TemporaryDirectory() as folder:
            found = [
                asyncio.run(auditing._audited(plan, env.name, 10 * seconds, Path(folder, "latest")))
                for env in envs
            ]
        keys = [audit_key(env, plan.recipe) for env in envs]
        return tuple(
            evolve(one, key=key if one.key else "") for one, key in zip(found, keys, strict=True)
        )

    monkeypatch.setattr(auditing, "_in_process", audited)
