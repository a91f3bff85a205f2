"""Finds the service that a plan asks for, before anything is written or paid for."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from rlc.plan.tree import Plan
from rlc.service.errors import ServiceError
from rlc.service.interface import ServiceClient

_LOCAL_PACKAGES = ("numpy", "torch", "transformers", "safetensors", "tinker", "tinker_cookbook")


def require_service(plan: Plan) -> None:
    """Refuse a plan whose service cannot be used from here, by name and before it starts.

    Raises:
        ServiceError: the text says what is missing and what works without it.
    """
    names = {stage.model.service for stage in plan.stages}
    if len(names) > 1:
        raise ServiceError(f"one job runs on one service, not on {' and '.join(sorted(names))}")
    if names == {"tinker"}:
        raise ServiceError(_hosted_refusal(plan.stages[0].model.base))
    missing = [name for name in _LOCAL_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ServiceError(
            f"the embedded engine needs {', '.join(missing)}: pip install 'rlc[local,gem]'"
        )


def connect_service(plan: Plan, checkpoints: Path) -> ServiceClient:
    """The client for the plan's service; the embedded engine saves under ``checkpoints``."""
    require_service(plan)
    from rlc.service.local import connect

    return connect(checkpoints)


def _hosted_refusal(base: str) -> str:
    """Why this version cannot run on hosted Tinker, the most basic reason first."""
    if not os.environ.get("TINKER_API_KEY"):
        return (
            f"`{base}` is trained on the hosted Tinker service, which needs TINKER_API_KEY in the "
            "environment; `--rehearse` runs the same job on the embedded engine without a key"
        )
    return (
        f"`{base}` is trained on the hosted Tinker service, which this version of rlc cannot "
        "drive yet; `--rehearse` runs the same job on the embedded engine"
    )
