"""Requests about the account, about sessions, and about models and runs, which need no session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, Field
from starlette.responses import Response
from tinker import types
from tinker.types.session_status import ClientSessionFinished, ClientSessionFinishReason
from tinker.types.session_status_query import SessionStatusQuery

from rlc.service.http import RefusedRequest
from rlc.service.server.backend import Backend
from rlc.service.server.checkpoint_requests import fetch
from rlc.service.server.futures import EncodedReply
from rlc.service.server.runs import as_time, paged
from rlc.service.server.sessions import Session
from rlc.service.server.signing import ORGANIZATION, PROJECT, USER


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
    raise RefusedRequest(
        403, "The key of this server is set where it is started, not over the network."
    )


async def download(backend: Backend, path: str, query: Mapping[str, str]) -> Response:
    """What a signed address names. Raise Refused (403) if its signature is wrong or expired."""
    if not backend.signer.has_signed_path(
        path, query.get("expires", ""), query.get("signature", "")
    ):
        raise RefusedRequest(403, "This address is not signed by this server, or has expired.")
    kind, *parts = path.split("/")
    if kind == "traces":
        return Response(backend.futures.traces.export(*parts), media_type="application/json")
    return await fetch(backend, *parts)


class Finish(BaseModel):
    """The body of a session's ``finish``."""

    reason: ClientSessionFinishReason
    detail: str | None = None


class Project(BaseModel):
    """The body of a session's ``project``."""

    project_id: str = Field(min_length=1, max_length=200)


class TraceExport(BaseModel):
    """The answer of a session's ``trace_export``; its trace is made when it is fetched."""

    status: Literal["ready"] = "ready"
    url: str


def create_session(
    backend: Backend, request: types.CreateSessionRequest
) -> types.CreateSessionResponse:
    """Open a session, and end those whose programs have fallen silent."""
    for silent in backend.sessions.silent():
        backend.end(silent, "nothing was heard of its program for a quarter of an hour")
    session = backend.sessions.create(
        request.user_metadata or {}, request.display_name, request.project_id or PROJECT
    )
    return types.CreateSessionResponse(session_id=session.id)


def heartbeat(
    backend: Backend, request: types.SessionHeartbeatRequest
) -> types.SessionHeartbeatResponse:
    backend.sessions.session(request.session_id)
    return types.SessionHeartbeatResponse()


def finish_session(backend: Backend, session_id: str, request: Finish) -> None:
    """End a session, unless it is over or forgotten."""
    session = backend.sessions.all.get(session_id)
    if session is not None and session.ended is None:
        backend.end(session, f"its program finished it ({request.reason.type})")
        session.status = ClientSessionFinished(reason=request.reason, detail=request.detail)


async def retrieve_future(backend: Backend, request: types.FutureRetrieveRequest) -> EncodedReply:
    """The answer to a promise, or that it is not there yet."""
    return await backend.futures.retrieve(request.request_id)


def cancel_future(backend: Backend, request: types.FutureRetrieveRequest) -> None:
    """Stop sampling for which nobody waits any more."""
    promise = backend.futures.find(request.request_id)
    if promise is not None and promise.is_sample:
        backend.futures.cancel(request.request_id)


def get_session(backend: Backend, session_id: str) -> types.GetSessionResponse:
    """What a session has made."""
    session = _find(backend, session_id)
    return types.GetSessionResponse(
        training_run_ids=session.model_ids,
        sampler_ids=session.sampler_ids,
        user_metadata=session.metadata,
        display_name=session.display_name,
    )


def list_sessions(backend: Backend, query: Mapping[str, str]) -> types.ListSessionsResponse:
    """The ids of the sessions since the server started, the latest first."""
    page, _ = paged([session.id for session in backend.sessions.latest()], query, 20)
    return types.ListSessionsResponse(sessions=page)


def search_sessions(
    backend: Backend, request: types.SessionSearchRequest
) -> types.SessionSearchResponse:
    """A page of the sessions since the server started that match, the latest first."""
    cursor = request.cursor
    found = [
        session
        for session in backend.sessions.latest()
        if _matches(session, request)
        and (
            cursor is None
            or (as_time(session.created_at), session.id)
            < (cursor.last_created_at, cursor.last_session_id)
        )
    ]
    page = [_summary(backend, session) for session in found[: request.limit]]
    following = None
    if len(found) > len(page):
        following = types.SessionSearchCursor(
            last_created_at=page[-1].created_at, last_session_id=page[-1].session_id
        )
    return types.SessionSearchResponse(sessions=page, next_cursor=following)


def _matches(session: Session, wanted: types.SessionSearchRequest) -> bool:
    named = [wanted.session_id == session.id] if wanted.session_id is not None else []
    if wanted.display_name is not None:
        name = (session.display_name or "").lower()
        named.append(all(word in name for word in wanted.display_name.lower().split()))
    return (
        (not named or any(named))
        and (wanted.project_ids is None or session.project_id in wanted.project_ids)
        and wanted.user_metadata.items() <= session.metadata.items()
        and (wanted.owner.type != "user" or USER in wanted.owner.owner_urns)
        and (wanted.statuses is None or any(_is_status(session, s) for s in wanted.statuses))
    )


def _is_status(session: Session, wanted: SessionStatusQuery) -> bool:
    status = session.status
    if status is None or status.type != wanted.type:
        return False
    if wanted.type != "client_finished" or wanted.reasons is None:
        return True
    return isinstance(status, ClientSessionFinished) and status.reason.type in wanted.reasons


def _summary(backend: Backend, session: Session) -> types.SessionSummary:
    stored = [item for run in session.model_ids for item in backend.engine.store.list(run)]
    return types.SessionSummary(
        session_id=session.id,
        created_at=as_time(session.created_at),
        owner=USER,
        project_id=session.project_id,
        status=session.status,
        checkpoints_count=len(stored),
        display_name=session.display_name,
        user_metadata=session.metadata,
        checkpoint_storage_bytes=sum(item.size_bytes for item in stored),
    )


def assign_project(backend: Backend, session_id: str, request: Project) -> None:
    """Move a session and its runs into a project, which needs no other making."""
    session = _find(backend, session_id)
    session.project_id = request.project_id
    for run_id in session.model_ids:
        backend.runs.move(run_id, request.project_id)
    backend.happened("project_session_added", project_id=request.project_id, session_id=session_id)


def export_trace(backend: Backend, session_id: str, base_url: str) -> TraceExport:
    """An address where what a session has done so far can be fetched, without a key."""
    _find(backend, session_id)
    url, _ = backend.signer.url(base_url, f"traces/{session_id}")
    return TraceExport(url=url)


def _find(backend: Backend, session_id: str) -> Session:
    session = backend.sessions.all.get(session_id)
    if session is None:
        raise RefusedRequest(404, f"There is no session {session_id}.")
    return session


def capabilities(backend: Backend) -> types.GetServerCapabilitiesResponse:
    """The models that are served; all can be trained and sampled."""
    models = [
        types.SupportedModel(
            model_name=served.name,
            max_context_length=served.facts.context,
            trainable=True,
            sampleable=True,
        )
        for served in backend.served.values()
    ]
    return types.GetServerCapabilitiesResponse(supported_models=models)


def training_runs(backend: Backend, query: Mapping[str, str]) -> types.TrainingRunsResponse:
    """A page of the training runs, the latest first."""
    page, cursor = paged(backend.runs.latest(query.get("project_id")), query, 20)
    return types.TrainingRunsResponse(training_runs=page, cursor=cursor)
