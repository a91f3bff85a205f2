"""Requests about sessions, and about models and runs, which need no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, Field
from tinker import types
from tinker.types.session_status import ClientSessionFinished, ClientSessionFinishReason
from tinker.types.session_status_query import SessionStatusQuery

from rlc.service.http.account.signing import PROJECT, USER
from rlc.service.http.backend import Backend
from rlc.service.http.checkpoints.runs import as_time
from rlc.service.http.futures import Reply
from rlc.service.http.refusals import Refused
from rlc.service.http.sessions import Session

T = TypeVar("T")


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


async def retrieve_future(backend: Backend, request: types.FutureRetrieveRequest) -> Reply:
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
        raise Refused(404, f"There is no session {session_id}.")
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


def paged(
    items: Sequence[T], query: Mapping[str, str], default: int
) -> tuple[list[T], types.Cursor]:
    """Return the part of a list that a query's ``limit`` and ``offset`` name."""
    try:
        limit, offset = int(query.get("limit", default)), int(query.get("offset", 0))
    except ValueError as error:
        raise Refused(400, "limit and offset are whole numbers.") from error
    if limit < 0 or offset < 0:
        raise Refused(400, "limit and offset are not negative.")
    cursor = types.Cursor(offset=offset, limit=limit, total_count=len(items))
    return list(items[offset : offset + limit]), cursor
