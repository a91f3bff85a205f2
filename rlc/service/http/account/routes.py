"""Requests about the account: who is asking, what was used, what happened."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from pydantic import BaseModel
from starlette.responses import Response
from tinker import types

from rlc.service.http.account.signing import ORGANIZATION, USER
from rlc.service.http.backend import Backend
from rlc.service.http.checkpoints import external
from rlc.service.http.refusals import Refused

_LONGEST = timedelta(days=14)
_GIGABYTE = 10**9


class AuditQuery(BaseModel):
    """The query of ``audit``."""

    event_type: Literal["all", "checkpoints", "projects", "teams", "organizations"] = "all"
    day: date | None = None


class _Organization(BaseModel):
    name: str = ORGANIZATION


class _User(BaseModel):
    email: str = "local"  # not one: what the command line shows as who has logged in


class _KeyDetails(BaseModel):
    org_details: _Organization = _Organization()
    user_details: _User = _User()


class ApiKey(BaseModel):
    """The answer of ``auth/apikey/me``, as the SDK's command line reads it."""

    key_id: int = 0
    name: str = "rlc serve"
    note: str = "the key that the server was started with"
    details: _KeyDetails = _KeyDetails()


def token(backend: Backend) -> types.AuthTokenResponse:
    """An identity in exchange for the key: where the SDK's ``whoami`` reads who it is."""
    return types.AuthTokenResponse(jwt=backend.signer.token())


def api_key(_: Backend) -> ApiKey:
    """The one key that a server has."""
    return ApiKey()


def delete_api_key(_: Backend) -> None:
    """Refuse: the key is the operator's."""
    raise Refused(403, "The key of this server is set where it is started, not over the network.")


def usage(backend: Backend, query: types.GetBillingUsageRequest) -> types.BillingUsageResponse:
    """The tokens of each hour and session since the server started; all of them are free."""
    start, end = (
        _hour(query.starting_on, "starting_on"),
        _hour(query.ending_before, "ending_before"),
    )
    if start > datetime.now(UTC):
        raise Refused(400, "starting_on is in the future.")
    if not start < end <= start + _LONGEST:
        raise Refused(400, "ending_before is after starting_on, and at most 14 days.")
    sessions = backend.sessions.all
    projects = {session_id: session.project_id for session_id, session in sessions.items()}
    events = backend.usage.between(start, end, projects)
    return types.BillingUsageResponse(
        data=events,
        sessions={
            session_id: types.BillingUsageSession(
                user_metadata=sessions[session_id].metadata or None
            )
            for session_id in {event.session_id for event in events}
            if session_id in sessions
        },
    )


def _hour(moment: datetime, name: str) -> datetime:
    """A moment in UTC. Raise Refused if it is not the start of an hour, or not in this era."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if not 1970 <= moment.year < 9999:
        raise Refused(400, f"{name} is out of range.")
    moment = moment.astimezone(UTC)
    if (moment.minute, moment.second, moment.microsecond) != (0, 0, 0):
        raise Refused(400, f"{name} is the start of an hour, in UTC.")
    return moment


def stored(
    backend: Backend, query: types.GetCurrentCheckpointStorageUsageRequest
) -> types.CurrentCheckpointStorageUsageResponse:
    """How much the checkpoints of each project take now."""
    return types.CurrentCheckpointStorageUsageResponse(
        effective_rate_usd_per_gigabyte_month=0.0,
        data=[
            types.CurrentCheckpointStorageUsageItem(
                project_id=project,
                org_user_urn=USER,
                checkpoint_count=len(sizes),
                size_bytes=sum(sizes),
                size_gigabytes=sum(sizes) / _GIGABYTE,
                estimated_monthly_cost_usd=0.0,
            )
            for project, sizes in sorted(backend.runs.sizes_by_project().items())
            if query.project_id in (None, project)
        ],
    )


def audit(backend: Backend, query: AuditQuery) -> types.AuditLogResponse:
    """What happened on a day (UTC), today by default."""
    resource = None if query.event_type == "all" else query.event_type.removesuffix("s")
    entries = backend.audit.of(query.day or datetime.now(UTC).date(), resource)
    return types.AuditLogResponse(entries=list(entries))


async def download(backend: Backend, path: str, query: Mapping[str, str]) -> Response:
    """What a signed address names. Raise Refused (403) if its signature is wrong or expired."""
    if not backend.signer.has_signed_path(
        path, query.get("expires", ""), query.get("signature", "")
    ):
        raise Refused(403, "This address is not signed by this server, or has expired.")
    kind, *parts = path.split("/")
    if kind == "traces":
        return Response(backend.futures.traces.export(*parts), media_type="application/json")
    return await external.fetch(backend, *parts)
