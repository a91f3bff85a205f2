"""Requests about checkpoints: listed, described, published, copied and deleted.

A checkpoint is rewritten in turn with the saves of its model, as it holds its description.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from pydantic import BaseModel
from tinker import types

from rlc.service.engine.checkpoints import CheckpointStore
from rlc.service.http.backend import Backend, check_ttl
from rlc.service.http.checkpoints.runs import engine_path, path_of, tinker_path
from rlc.service.http.listing import paged
from rlc.service.http.refusals import Refused, refusing


class WeightsInfo(BaseModel):
    """The body of ``weights_info``."""

    tinker_path: str


class Ttl(BaseModel):
    """The body of a checkpoint's ``ttl``."""

    ttl_seconds: int | None


def all_checkpoints(backend: Backend, query: Mapping[str, str]) -> types.CheckpointsListResponse:
    """A page of the checkpoints of all runs, the newest first."""
    page, cursor = paged(backend.runs.checkpoints(), query, 100)
    return types.CheckpointsListResponse(checkpoints=page, cursor=cursor)


def checkpoints_of(backend: Backend, run_id: str) -> types.CheckpointsListResponse:
    """The checkpoints of one run."""
    return types.CheckpointsListResponse(checkpoints=backend.runs.checkpoints(run_id))


def weights_info(backend: Backend, request: WeightsInfo) -> types.WeightsInfoResponse:
    """What a client needs to load a checkpoint."""
    with refusing(404):
        return backend.runs.weights_info(request.tinker_path)


async def delete(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Delete a checkpoint; samplers that have loaded it continue."""
    path = path_of(run_id, kind, name)
    with refusing(404):
        await backend.engine.delete_checkpoint(engine_path(path))
    backend.happened("checkpoint_deleted", tinker_path=path)


async def set_ttl(backend: Backend, run_id: str, kind: str, name: str, request: Ttl) -> None:
    """Let a checkpoint expire that many seconds from now, or never."""
    check_ttl(request.ttl_seconds)
    path, expires_at = path_of(run_id, kind, name), backend.engine.store.expiry(request.ttl_seconds)
    with refusing(404):
        await backend.engine.in_turn(
            lambda store: store.change(engine_path(path), expires_at=expires_at)
        )
    backend.happened("checkpoint_ttl_set", tinker_path=path, ttl_seconds=request.ttl_seconds)


async def publish(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Mark a checkpoint as public. Raise Refused (409) if it is; the SDK repeats that request for
    five minutes before it raises ConflictError."""
    await _set_public(backend, path_of(run_id, kind, name), True)


async def unpublish(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Mark a checkpoint as private again. Raise Refused (409) as `publish` does."""
    await _set_public(backend, path_of(run_id, kind, name), False)


async def _set_public(backend: Backend, path: str, public: bool) -> None:
    def change(store: CheckpointStore) -> None:
        if store.find(engine_path(path)).description.public is public:
            raise Refused(409, f"{path} is {'public' if public else 'private'} already.")
        store.change(engine_path(path), public=public)

    with refusing(404):
        await backend.engine.in_turn(change)
    event = "checkpoint_published" if public else "checkpoint_unpublished"
    backend.happened(event, tinker_path=path)


async def copy_weights(
    backend: Backend, request: types.CopyWeightsRequest, headers: Mapping[str, str]
) -> types.CopyWeightsResponse:
    """Copy a checkpoint into a run of its own, which no model trains. A request that is repeated,
    with the same ``X-Idempotency-Key``, copies once."""
    once = headers.get("x-idempotency-key")
    if once is None or once not in backend.copies:
        copied = await _copy(backend, request)
        if once is None:
            return types.CopyWeightsResponse(tinker_path=copied)
        backend.copies[once] = copied
    return types.CopyWeightsResponse(tinker_path=backend.copies[once])


async def _copy(backend: Backend, request: types.CopyWeightsRequest) -> str:
    if request.session_id is not None and request.model_seq_id is not None:
        session = backend.sessions.session(request.session_id)
        project_id, run_id = session.project_id, f"{session.id}:train:{request.model_seq_id}"
        if backend.runs.exists(run_id):
            raise Refused(400, f"There is a training run {run_id} already.")
    elif request.destination_project_id:
        project_id, run_id = request.destination_project_id, f"{uuid4()}:train:0"
    else:
        raise Refused(
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
