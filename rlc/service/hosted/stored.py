"""The checkpoints of an account: what is stored there, and its deletion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import tinker
from attrs import field, frozen

from rlc.service.hosted.endpoint import Endpoint, find_endpoint
from rlc.service.hosted.sdk import open_rest
from rlc.service.hosted.service import answer_of, require_reachable
from rlc.service.interface import ServiceError

_PAGE = 100
_LISTED = "listed its checkpoints"


@frozen
class StoredCheckpoint:
    """A checkpoint of the account. ``size`` is in bytes, None if the service does not say it;
    ``expires`` in seconds since the epoch, None: never; ``metadata`` that of the run."""

    path: str
    size: int | None
    expires: float | None
    metadata: Mapping[str, str] = field(factory=dict)


def stored_checkpoints(service: str, base_url: str | None = None) -> list[StoredCheckpoint]:
    """Return all checkpoints of the account on a service; blocks. Raise ServiceError if it does not
    list any, has no key, or cannot be reached."""
    endpoint = _endpoint(service, base_url)
    found = answer_of(lambda: [*_all(open_rest(endpoint))], endpoint, _LISTED)
    return [
        StoredCheckpoint(
            one.tinker_path,
            one.size_bytes,
            None if one.expires_at is None else _seconds(one.expires_at),
            dict(one.user_metadata or {}),
        )
        for one in found
    ]


def delete_stored(path: str, service: str, base_url: str | None = None) -> None:
    """Delete a checkpoint of the account; blocks. Raise ServiceError if it is not deleted."""
    endpoint = _endpoint(service, base_url)

    def ask() -> None:
        open_rest(endpoint).delete_checkpoint_from_tinker_path(path).result()

    answer_of(ask, endpoint, f"deleted {path}")


def _endpoint(service: str, base_url: str | None) -> Endpoint:
    endpoint = find_endpoint(base_url, service=service)
    if endpoint.provider.module is not None:
        raise ServiceError(f"{endpoint.name} does not list what it has stored")
    require_reachable(endpoint)
    return endpoint


def _all(rest: tinker.RestClient) -> Iterator[tinker.types.Checkpoint]:
    offset = 0
    while page := rest.list_user_checkpoints(limit=_PAGE, offset=offset).result().checkpoints:
        yield from page
        offset += len(page)


def _seconds(time: datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
