"""Requests about the account, sessions, runs and checkpoints.

A checkpoint is rewritten in turn with the saves of its model, as its file has its description.
Adapters for other programs are the files of Hugging Face PEFT, at signed addresses: their arrays
are stored as PEFT names them, and an export for recipients of age (https://age-encryption.org) is
encrypted to them as it is fetched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import safetensors
from pydantic import BaseModel, Field
from starlette.responses import FileResponse, JSONResponse, Response
from tinker import types
from tinker.types.session_status import ClientSessionFinished, ClientSessionFinishReason
from tinker.types.session_status_query import SessionStatusQuery

from rlc.catalog import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from rlc.service.engine.checkpoints import CheckpointStore, peft_config
from rlc.service.http import JSON, RefusedRequest, refusing
from rlc.service.interface import ServiceError
from rlc.service.server.backend import ORGANIZATION, USER, Backend, Session, check_ttl
from rlc.service.server.futures import EncodedReply, chrome_trace
from rlc.service.server.runs import PROJECT, as_time, engine_path, paged, path_of, tinker_path


def api_key(_: Backend) -> Response:
    who = {"org_details": {"name": ORGANIZATION}, "user_details": {"email": "local"}}
    note = "the key that the server was started with"
    return JSONResponse({"key_id": 0, "name": "rlc serve", "note": note, "details": who})


def delete_api_key(_: Backend) -> None:
    """Refuse: the key is the operator's."""
    raise RefusedRequest(
        403, "The key of this server is set where it is started, not over the network."
    )


async def download(backend: Backend, path: str, query: Mapping[str, str]) -> Response:
    """Fetch a signed address. Raise RefusedRequest (403) if its signature is wrong or expired."""
    expires, signature = query.get("expires", ""), query.get("signature", "")
    if not backend.signer.has_signed_path(path, expires, signature):
        raise RefusedRequest(403, "This address is not signed by this server, or has expired.")
    kind, *parts = path.split("/")
    if kind == "traces":
        return Response(chrome_trace(backend.futures.spans, *parts), media_type=JSON)
    return await fetch(backend, *parts)


class Finish(BaseModel):
    reason: ClientSessionFinishReason
    detail: str | None = None


class Project(BaseModel):
    project_id: str = Field(min_length=1, max_length=200)


def create_session(
    backend: Backend, request: types.CreateSessionRequest
) -> types.CreateSessionResponse:
    """Open a session, and end those without a heartbeat."""
    for silent in backend.sessions.silent():
        backend.end(silent, "nothing was heard of its program for a quarter of an hour")
    session = Session(
        request.user_metadata or {}, request.display_name, request.project_id or PROJECT
    )
    backend.sessions.all[session.id] = session
    return types.CreateSessionResponse(session_id=session.id)


def heartbeat(
    backend: Backend, request: types.SessionHeartbeatRequest
) -> types.SessionHeartbeatResponse:
    backend.sessions.session(request.session_id)
    return types.SessionHeartbeatResponse()


def finish_session(backend: Backend, session_id: str, request: Finish) -> None:
    """End a session, unless it is over or unknown."""
    session = backend.sessions.all.get(session_id)
    if session is not None and session.ended is None:
        backend.end(session, f"its program finished it ({request.reason.type})")
        session.status = ClientSessionFinished(reason=request.reason, detail=request.detail)


async def retrieve_future(backend: Backend, request: types.FutureRetrieveRequest) -> EncodedReply:
    """Return the answer to a promise, or HTTP 408 if it is not there yet."""
    return await backend.futures.retrieve(request.request_id)


def cancel_future(backend: Backend, request: types.FutureRetrieveRequest) -> None:
    promise = backend.futures.find(request.request_id)
    if promise is not None and promise.is_sample:
        backend.futures.cancel(request.request_id)


def get_session(backend: Backend, session_id: str) -> types.GetSessionResponse:
    session = _find(backend, session_id)
    return types.GetSessionResponse(
        training_run_ids=session.model_ids,
        sampler_ids=session.sampler_ids,
        user_metadata=session.metadata,
        display_name=session.display_name,
    )


def list_sessions(backend: Backend, query: Mapping[str, str]) -> types.ListSessionsResponse:
    page, _ = paged([session.id for session in backend.sessions.latest()], query, 20)
    return types.ListSessionsResponse(sessions=page)


def search_sessions(
    backend: Backend, request: types.SessionSearchRequest
) -> types.SessionSearchResponse:
    """Return a page of the sessions since the server started that match, the latest first."""
    found = [session for session in backend.sessions.latest() if _matches(session, request)]
    if (cursor := request.cursor) is not None:
        last = cursor.last_created_at, cursor.last_session_id
        found = [session for session in found if (as_time(session.created_at), session.id) < last]
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
    """Move a session and its runs into a project, which need not exist."""
    session = _find(backend, session_id)
    session.project_id = request.project_id
    for run_id in session.model_ids:
        backend.runs.move(run_id, request.project_id)
    backend.happened("project_session_added", project_id=request.project_id, session_id=session_id)


def export_trace(backend: Backend, session_id: str, base_url: str) -> Response:
    """Return an address at which the trace of a session is made and fetched without a key."""
    _find(backend, session_id)
    url, _ = backend.signer.url(base_url, f"traces/{session_id}")
    return JSONResponse({"status": "ready", "url": url})


def _find(backend: Backend, session_id: str) -> Session:
    session = backend.sessions.all.get(session_id)
    if session is None:
        raise RefusedRequest(404, f"There is no session {session_id}.")
    return session


def capabilities(backend: Backend) -> types.GetServerCapabilitiesResponse:
    usable: Any = {"trainable": True, "sampleable": True}
    models = [
        types.SupportedModel(model_name=s.name, max_context_length=s.facts.context, **usable)
        for s in backend.served.values()
    ]
    return types.GetServerCapabilitiesResponse(supported_models=models)


def training_runs(backend: Backend, query: Mapping[str, str]) -> types.TrainingRunsResponse:
    page, cursor = paged(backend.runs.latest(query.get("project_id")), query, 20)
    return types.TrainingRunsResponse(training_runs=page, cursor=cursor)


class WeightsInfo(BaseModel):
    tinker_path: str


class Ttl(BaseModel):
    ttl_seconds: int | None


def all_checkpoints(backend: Backend, query: Mapping[str, str]) -> types.CheckpointsListResponse:
    page, cursor = paged(backend.runs.checkpoints(), query, 100)
    return types.CheckpointsListResponse(checkpoints=page, cursor=cursor)


def weights_info(backend: Backend, request: WeightsInfo) -> types.WeightsInfoResponse:
    with refusing(404):
        return backend.runs.weights_info(request.tinker_path)


async def delete(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Delete a checkpoint; samplers that have loaded it go on."""
    path = path_of(run_id, kind, name)
    with refusing(404):
        await backend.engine.delete_checkpoint(engine_path(path))
    backend.happened("checkpoint_deleted", tinker_path=path)


async def set_ttl(backend: Backend, run_id: str, kind: str, name: str, request: Ttl) -> None:
    """Let a checkpoint expire that many seconds from now, or never."""
    check_ttl(request.ttl_seconds)
    path, expires_at = path_of(run_id, kind, name), backend.engine.store.expiry(request.ttl_seconds)
    change = partial(CheckpointStore.change, path=engine_path(path), expires_at=expires_at)
    with refusing(404):
        await backend.engine.in_turn(change)
    backend.happened("checkpoint_ttl_set", tinker_path=path, ttl_seconds=request.ttl_seconds)


async def set_public(backend: Backend, path: str, public: bool) -> None:
    """Publish a checkpoint, or make it private. Raise RefusedRequest (409) if it is that already;
    the SDK repeats the request for five minutes before it raises ConflictError."""

    def change(store: CheckpointStore) -> None:
        if store.find(engine_path(path)).description.public is public:
            raise RefusedRequest(409, f"{path} is {'public' if public else 'private'} already.")
        store.change(engine_path(path), public=public)

    with refusing(404):
        await backend.engine.in_turn(change)
    event = "checkpoint_published" if public else "checkpoint_unpublished"
    backend.happened(event, tinker_path=path)


async def copy_weights(
    backend: Backend, request: types.CopyWeightsRequest, headers: Mapping[str, str]
) -> types.CopyWeightsResponse:
    """Copy a checkpoint into a run of its own, which no model trains. A request that is repeated
    with the same ``X-Idempotency-Key`` copies once."""
    key = headers.get("x-idempotency-key")
    copied = None if key is None else backend.copies.get(key)
    if copied is None:
        copied = await _copy(backend, request)
        if key is not None:
            backend.copies[key] = copied
    return types.CopyWeightsResponse(tinker_path=copied)


async def _copy(backend: Backend, request: types.CopyWeightsRequest) -> str:
    if request.session_id is not None and request.model_seq_id is not None:
        session = backend.sessions.session(request.session_id)
        project_id, run_id = session.project_id, f"{session.id}:train:{request.model_seq_id}"
        if backend.runs.exists(run_id):
            raise RefusedRequest(400, f"There is a training run {run_id} already.")
    elif request.destination_project_id:
        project_id, run_id = request.destination_project_id, f"{uuid4()}:train:0"
    else:
        raise RefusedRequest(
            400, "copy_weights needs a destination_project_id, or a session_id and a model_seq_id."
        )
    check_ttl(request.ttl_seconds)
    expires_at = backend.engine.store.expiry(request.ttl_seconds)
    source = engine_path(request.source_path)
    with refusing(404):
        run = backend.runs.run_of(request.source_path)
        copied = await backend.engine.in_turn(lambda store: store.copy(source, run_id, expires_at))
    backend.runs.add(run_id, run.base_model, run.lora, run.user_metadata, project_id)
    path = tinker_path(copied)
    backend.happened("checkpoint_created", tinker_path=path, copied_from=request.source_path)
    return path


_EXPORTS = "external_weights"
_ENCRYPTED = ".age"
_MOST_RECIPIENTS = 10


def urls(
    backend: Backend, run_id: str, kind: str, name: str, base_url: str
) -> types.ExternalWeightsUrlsResponse:
    """Return addresses at which an export can be fetched for an hour without a key."""
    path = path_of(run_id, kind, name)
    if kind != _EXPORTS:
        raise RefusedRequest(400, f"{path} is no export: save_weights_external makes one.")
    with refusing(404):
        description = backend.engine.store.find(engine_path(path)).description
    suffix = _ENCRYPTED if description.recipients else ""
    urls, expires = {}, datetime.now(UTC)
    for file in (f"{ADAPTER_CONFIG}{suffix}", f"{ADAPTER_WEIGHTS}{suffix}"):
        urls[file], expires = backend.signer.url(base_url, f"{_EXPORTS}/{run_id}/{name}/{file}")
    backend.happened("checkpoint_read", tinker_path=path)
    return types.ExternalWeightsUrlsResponse(urls=urls, expires=expires)


async def fetch(backend: Backend, run_id: str, name: str, file: str) -> Response:
    path = engine_path(path_of(run_id, _EXPORTS, name))
    with refusing(404):
        description = backend.engine.store.find(path).description
    location, plain = backend.engine.store.file(path), file.removesuffix(_ENCRYPTED)
    if plain == ADAPTER_WEIGHTS and not description.recipients:
        return FileResponse(location, filename=file)
    if plain == ADAPTER_WEIGHTS:
        content = await asyncio.to_thread(location.read_bytes)
    else:
        with safetensors.safe_open(str(location), framework="numpy") as opened:
            keys = list(opened.keys())
        config = peft_config(backend.runs.find(run_id).base_model, description.lora.rank, keys)
        content = json.dumps(config, indent=2).encode()
    if not description.recipients:
        return Response(content, media_type=JSON)
    import pyrage

    recipients = _parsed(description.recipients)
    encrypted = await asyncio.to_thread(pyrage.encrypt, content, recipients)
    return Response(encrypted, media_type="application/octet-stream")


def check_recipients(recipients: Sequence[str]) -> None:
    """Raise ServiceError if this server cannot encrypt to some recipients."""
    if len(recipients) > _MOST_RECIPIENTS:
        raise ServiceError(f"An export has at most {_MOST_RECIPIENTS} recipients.")
    try:
        _parsed(recipients)
    except ImportError as error:
        raise ServiceError("This server encrypts exports with pyrage, which it lacks.") from error


def _parsed(recipients: Sequence[str]) -> list[Any]:
    if not recipients:
        return []
    import pyrage

    parsed = []
    for text in recipients:
        kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
        try:
            parsed.append(kind.Recipient.from_str(text))
        except pyrage.RecipientError as error:
            raise ServiceError(
                f"{text[:100]!r} is no recipient of age: such a one is an age1… or an SSH key."
            ) from error
    return parsed
