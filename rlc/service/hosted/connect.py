"""Finds the service of a plan, before anything is written or paid for."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from rlc.catalog.requirements import SERVICE_PACKAGES, module_of
from rlc.plan import LOCAL, Plan
from rlc.plan.leaves import asked_models
from rlc.service.interface import RemoteService, ServiceClient, ServiceError

_NEEDED_BY = {
    LOCAL: ("the embedded engine", "local,gem"),
    "tinker": ("the Tinker service", "tinker,gem"),
}


def require_service(plan: Plan, base_url: str | None = None) -> None:
    """Check that the service of a plan can be used from here.

    A hosted service is asked whether it accepts the key and has the plan's models. ``base_url`` is
    the address of a server to use in its place.

    Raises:
        ServiceError: the text says what is missing and what works without it.
    """
    if _name(plan) == "tinker":
        require_packages("tinker")
        from rlc.service.hosted.endpoint import find_endpoint

        endpoint = find_endpoint(base_url)
        from rlc.service.hosted.preflight import check_server

        check_server(plan, endpoint)
    elif base_url is not None:
        raise ServiceError(
            "--base-url is the address of a Tinker server; this plan runs on the embedded engine"
        )
    else:
        require_packages(LOCAL)


def connect_service(
    plan: Plan,
    checkpoints: Path,
    base_url: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ServiceClient:
    """A client of the plan's service, which makes no request yet.

    The embedded engine saves under ``checkpoints``; a hosted service stores the ``metadata`` with
    all that it makes. Raise ServiceError if there is no key or a package is missing.
    """
    if _name(plan) == LOCAL:
        require_service(plan, base_url)
    return open_service(_name(plan), checkpoints, base_url, metadata)


def open_service(
    name: str,
    checkpoints: Path,
    base_url: str | None = None,
    metadata: Mapping[str, str] | None = None,
    shared: bool = False,
) -> ServiceClient:
    """The same for the name of a service. With ``shared``, requests may join the engine's running
    batch at any time."""
    if name == LOCAL:
        require_packages(LOCAL)
        from rlc.service.engine import open_engine

        return open_engine(checkpoints, continuous=shared)
    require_packages("tinker")
    from rlc.service.hosted.endpoint import find_endpoint

    endpoint = find_endpoint(base_url)
    from rlc.service.hosted.service import HostedService

    hosted: RemoteService = HostedService(endpoint, dict(metadata or {}))
    return hosted


def _name(plan: Plan) -> str:
    """The one service of all stages, and of the models that they ask."""
    names = {stage.model.service for stage in plan.stages}
    names |= {state.model.service for s in plan.stages for _, state in asked_models(s)}
    if len(names) > 1:
        raise ServiceError(f"one job runs on one service, not on {' and '.join(sorted(names))}")
    return names.pop()


def require_packages(service: str) -> None:
    """Raise ServiceError if a service needs packages that are not installed."""
    packages = SERVICE_PACKAGES[service]
    missing = [name for name in packages if importlib.util.find_spec(module_of(name)) is None]
    if missing:
        what, extra = _NEEDED_BY[service]
        raise ServiceError(f"{what} needs {', '.join(missing)}: pip install 'rlc[{extra}]'")
