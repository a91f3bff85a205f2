"""Requests about the account: who is asking, and what signed addresses name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response
from tinker import types

from rlc.service.http.account.signing import ORGANIZATION
from rlc.service.http.backend import Backend
from rlc.service.http.checkpoints import external
from rlc.service.http.refusals import Refused


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
