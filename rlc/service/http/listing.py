"""Requests about sessions, and about models, runs and checkpoints, which need no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from tinker import types

from rlc.service.http.backend import Backend, check_ttl
from rlc.service.http.futures import Reply
from rlc.service.http.refusals import Refused, refusing
from rlc.service.http.runs import TINKER, engine_path

T = TypeVar("T")


class WeightsInfo(BaseModel):
    """The body of ``weights_info``."""

    tinker_path: str


class Ttl(BaseModel):
    """The body of a checkpoint's ``ttl``."""

    ttl_seconds: int | None


class Finish(BaseModel):
    """The body of a session's ``finish``."""

    reason: dict[str, Any]
    detail: str | None = None


def create_session(
    backend: Backend, request: types.CreateSessionRequest
) -> types.CreateSessionResponse:
    """Open a session, and end those whose programs have fallen silent."""
    for silent in backend.sessions.silent():
        backend.end(silent, "nothing was heard of its program for a quarter of an hour")
    session = backend.sessions.create(request.user_metadata or {}, request.display_name)
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
        backend.end(session, f"its program finished it ({request.reason.get('type')})")


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
    session = backend.sessions.all.get(session_id)
    if session is None:
        raise Refused(404, f"There is no session {session_id}.")
    return types.GetSessionResponse(
        training_run_ids=session.model_ids,
        sampler_ids=session.sampler_ids,
        user_metadata={key: str(value) for key, value in session.user_metadata.items()},
        display_name=session.display_name,
    )


def list_sessions(backend: Backend, query: Mapping[str, str]) -> types.ListSessionsResponse:
    """The ids of the sessions since the server started, the latest first."""
    latest = sorted(backend.sessions.all.values(), key=lambda s: s.created_at, reverse=True)
    page, _ = _page([session.id for session in latest], query, 20)
    return types.ListSessionsResponse(sessions=page)


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
    page, cursor = _page(backend.runs.latest(), query, 20)
    return types.TrainingRunsResponse(training_runs=page, cursor=cursor)


def all_checkpoints(backend: Backend, query: Mapping[str, str]) -> types.CheckpointsListResponse:
    """A page of the checkpoints of all runs, the newest first."""
    page, cursor = _page(backend.runs.checkpoints(), query, 100)
    return types.CheckpointsListResponse(checkpoints=page, cursor=cursor)


def checkpoints_of(backend: Backend, run_id: str) -> types.CheckpointsListResponse:
    """The checkpoints of one run."""
    return types.CheckpointsListResponse(checkpoints=backend.runs.checkpoints(run_id))


def weights_info(backend: Backend, request: WeightsInfo) -> types.WeightsInfoResponse:
    """What a client needs to load a checkpoint."""
    with refusing(404):
        return backend.runs.weights_info(request.tinker_path)


def delete_checkpoint(backend: Backend, run_id: str, checkpoint_id: str) -> None:
    """Delete a checkpoint; samplers that have loaded it continue."""
    with refusing(404):
        backend.engine.store.delete(engine_path(f"{TINKER}{run_id}/{checkpoint_id}"))


def set_ttl(backend: Backend, run_id: str, checkpoint_id: str, request: Ttl) -> None:
    """Let a checkpoint expire that many seconds from now, or never."""
    store = backend.engine.store
    check_ttl(request.ttl_seconds)
    with refusing(404):
        path = engine_path(f"{TINKER}{run_id}/{checkpoint_id}")
        store.keep_until(path, store.expiry(request.ttl_seconds))


def _page(
    items: Sequence[T], query: Mapping[str, str], default: int
) -> tuple[list[T], types.Cursor]:
    """The part of a list that a query's ``limit`` and ``offset`` name."""
    try:
        limit, offset = int(query.get("limit", default)), int(query.get("offset", 0))
    except ValueError as error:
        raise Refused(400, "limit and offset are whole numbers.") from error
    if limit < 0 or offset < 0:
        raise Refused(400, "limit and offset are not negative.")
    cursor = types.Cursor(offset=offset, limit=limit, total_count=len(items))
    return list(items[offset : offset + limit]), cursor
