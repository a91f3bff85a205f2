"""Requests about checkpoints: listed, described, published, copied, deleted and exported.

A checkpoint is rewritten in turn with the saves of its model, as it holds its description. Adapters
for other programs are the files of Hugging Face PEFT, at signed addresses: their arrays are stored
as PEFT names them, and an export for recipients of age (https://age-encryption.org) is encrypted to
them as it is fetched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import safetensors
from pydantic import BaseModel
from starlette.responses import FileResponse, Response
from tinker import types

from rlc.catalog import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from rlc.service.engine.checkpoints import CheckpointStore, peft_config
from rlc.service.http import RefusedRequest, refusing
from rlc.service.interface import ServiceError
from rlc.service.server.backend import Backend, check_ttl
from rlc.service.server.runs import engine_path, paged, path_of, tinker_path


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
            raise RefusedRequest(409, f"{path} is {'public' if public else 'private'} already.")
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
    """Addresses where the files of an export can be fetched for an hour, without a key."""
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
    """A file of an export."""
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
        return Response(content, media_type="application/json")
    import pyrage

    recipients = _parsed(description.recipients)
    encrypted = await asyncio.to_thread(pyrage.encrypt, content, recipients)
    return Response(encrypted, media_type="application/octet-stream")


def check_recipients(recipients: Sequence[str]) -> None:
    """Raise ServiceError if nothing can be encrypted to them here."""
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
