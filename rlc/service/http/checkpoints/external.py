"""Adapters for other programs: the files of Hugging Face PEFT, at signed addresses.

The arrays are stored as PEFT names them. An export for recipients of age
(https://age-encryption.org) is encrypted to them as it is fetched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import safetensors
from starlette.responses import FileResponse, Response
from tinker import types

from rlc.catalog.saved_weights import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from rlc.service.engine.checkpoints import peft_config
from rlc.service.http.backend import Backend
from rlc.service.http.checkpoints.runs import engine_path, path_of
from rlc.service.http.refusals import Refused, refusing
from rlc.service.interface import ServiceError

_EXPORTS = "external_weights"
_ENCRYPTED = ".age"
_MOST_RECIPIENTS = 10


def urls(
    backend: Backend, run_id: str, kind: str, name: str, base_url: str
) -> types.ExternalWeightsUrlsResponse:
    """Addresses where the files of an export can be fetched for an hour, without a key."""
    path = path_of(run_id, kind, name)
    if kind != _EXPORTS:
        raise Refused(400, f"{path} is no export: save_weights_external makes one.")
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
