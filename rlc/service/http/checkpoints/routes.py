"""Requests about checkpoints: listed, described, published, copied, exported and deleted.

A checkpoint is rewritten in turn with the saves of its model, as it holds its description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import uuid4

import safetensors
from pydantic import BaseModel
from starlette.responses import FileResponse, Response
from tinker import types

from rlc.service.http.backend import Backend, check_ttl
from rlc.service.http.checkpoints.runs import TINKER, engine_path, tinker_path
from rlc.service.http.listing import paged
from rlc.service.http.refusals import Refused, refusing
from rlc.service.local.checkpoints import CheckpointStore
from rlc.service.local.model.lora import ALPHA

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # names of Hugging Face PEFT
_EXPORTS = "external_weights"


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
    path = _path(run_id, kind, name)
    with refusing(404):
        await backend.engine.delete_checkpoint(engine_path(path))
    backend.audit.checkpoint("deleted", path)


async def set_ttl(backend: Backend, run_id: str, kind: str, name: str, request: Ttl) -> None:
    """Let a checkpoint expire that many seconds from now, or never."""
    check_ttl(request.ttl_seconds)
    path, expires_at = _path(run_id, kind, name), backend.engine.store.expiry(request.ttl_seconds)
    with refusing(404):
        await backend.engine.in_turn(
            lambda store: store.change(engine_path(path), expires_at=expires_at)
        )
    backend.audit.checkpoint("ttl_set", path, ttl_seconds=request.ttl_seconds)


async def publish(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Mark a checkpoint as public. Raise Refused (409) if it is; the SDK repeats that request for
    five minutes before it raises ConflictError."""
    await _set_public(backend, _path(run_id, kind, name), True)


async def unpublish(backend: Backend, run_id: str, kind: str, name: str) -> None:
    """Mark a checkpoint as private again. Raise Refused (409) as `publish` does."""
    await _set_public(backend, _path(run_id, kind, name), False)


async def _set_public(backend: Backend, path: str, public: bool) -> None:
    def change(store: CheckpointStore) -> None:
        if store.find(engine_path(path)).description.public is public:
            raise Refused(409, f"{path} is {'public' if public else 'private'} already.")
        store.change(engine_path(path), public=public)

    with refusing(404):
        await backend.engine.in_turn(change)
    backend.audit.checkpoint("published" if public else "unpublished", path)


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
        run = backend.runs.find(request.source_path.removeprefix(TINKER).split("/")[0])
        copied = await backend.engine.in_turn(lambda store: store.copy(source, run_id, expires_at))
    backend.runs.add(run_id, run.base_model, run.lora, run.user_metadata, project_id)
    path = tinker_path(copied)
    backend.audit.checkpoint("created", path, copied_from=request.source_path)
    return path


def external_urls(
    backend: Backend, run_id: str, kind: str, name: str, base_url: str
) -> types.ExternalWeightsUrlsResponse:
    """Addresses where the files of an export can be fetched for an hour, without a key."""
    path = _path(run_id, kind, name)
    if kind != _EXPORTS:
        raise Refused(400, f"{path} is no export: save_weights_external makes one.")
    with refusing(404):
        backend.engine.store.find(engine_path(path))
    urls, expires = {}, datetime.now(UTC)
    for file in (_CONFIG, _WEIGHTS):
        urls[file], expires = backend.signer.url(base_url, f"{_EXPORTS}/{run_id}/{name}/{file}")
    backend.audit.checkpoint("read", path)
    return types.ExternalWeightsUrlsResponse(urls=urls, expires=expires)


def external_file(backend: Backend, run_id: str, name: str, file: str) -> Response:
    """A file of an export: its arrays are stored as PEFT names them, its description is ours."""
    path = engine_path(_path(run_id, _EXPORTS, name))
    with refusing(404):
        stored = backend.engine.store.find(path)
    location = backend.engine.store.file(path)
    if file == _WEIGHTS:
        return FileResponse(location, filename=file)
    with safetensors.safe_open(str(location), framework="numpy") as opened:
        keys = list(opened.keys())
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": backend.runs.find(run_id).base_model,
        "r": stored.description.lora.rank,
        "lora_alpha": int(ALPHA),
        "lora_dropout": 0.0,
        "bias": "none",
        # As PEFT reads it: every layer whose name ends in one of these.
        "target_modules": sorted({key.split(".lora_")[0].rpartition(".")[2] for key in keys}),
        "inference_mode": True,
    }
    return Response(json.dumps(config, indent=2), media_type="application/json")


def _path(run_id: str, kind: str, name: str) -> str:
    return f"{TINKER}{run_id}/{kind}/{name}"
