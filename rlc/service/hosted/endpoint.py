"""The address of the service and its key: from options, the environment and ``.env``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from rlc.catalog import DOTENV, read_dotenv
from rlc.errors import Error
from rlc.service.interface import ServiceError

KEY, URL, PROJECT = "TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_PROJECT_ID"
_LOOPBACK_KEY = "tml-loopback"  # the SDK needs one even for a server that asks for none
_KEY_STARTS = ("tml-", "eyJ")
_NEW_KEY = "make a key in the Tinker console (https://tinker.thinkingmachines.ai/keys)"
_REHEARSE = "`--rehearse` runs the same job on the embedded engine without a key"


@frozen
class Endpoint:
    """A server and the key for it. None leaves the choice to the SDK: its default server, and
    the credentials of ``tinker auth login`` or ``TINKER_CREDENTIAL_CMD``."""

    base_url: str | None
    api_key: str | None = field(repr=False)
    project: str | None = None

    @property
    def name(self) -> str:
        return self.base_url or "the Tinker service"

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.base_url or "").hostname in ("127.0.0.1", "localhost", "::1")


def find_endpoint(
    base_url: str | None = None, environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Endpoint:
    """Return the endpoint of ``base_url``, the environment and the ``.env`` in ``folder`` (by
    default the working directory), in this order of precedence. Raise ServiceError if there is no
    key, one that cannot be Tinker's, an invalid address, or an unreadable ``.env``."""
    try:
        assigned = read_dotenv((folder or Path.cwd()) / DOTENV).values
    except Error as error:
        raise ServiceError(error.message) from error
    values = {**_settings(assigned), **_settings(environ)}
    url = base_url or values.get(URL)
    if url is not None:
        url = _checked_url(url)
    key = values.get(KEY)
    if key is None and Endpoint(url, None).is_loopback:
        key = _LOOPBACK_KEY
    elif key is None:
        _require_other_credentials(environ)
    elif not key.startswith(_KEY_STARTS):
        starts = " or ".join(f"`{start}`" for start in _KEY_STARTS)
        raise ServiceError(f"{KEY} is not a Tinker key: one starts with {starts}", _NEW_KEY)
    elif not (key.isascii() and key.isprintable() and " " not in key):
        raise ServiceError(f"{KEY} holds a space or a character that no key has", _NEW_KEY)
    return Endpoint(url, key, values.get(PROJECT))


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    stripped = {name: values.get(name, "").strip() for name in (KEY, URL, PROJECT)}
    return {name: value for name, value in stripped.items() if value}


def _require_other_credentials(environ: Mapping[str, str]) -> None:
    """Raise ServiceError unless the SDK has a key: from a command, or ``tinker auth login``."""
    if environ.get("TINKER_CREDENTIAL_CMD"):
        return
    from tinker.lib.credentials import JsonCredentialStore, default_credentials_path

    path = default_credentials_path()
    try:
        stored = JsonCredentialStore(path).get_default_key()
    except (OSError, ValueError) as error:
        raise ServiceError(f"cannot read {path}", "log in again: `tinker auth login`") from error
    if stored is None:
        raise ServiceError(
            f"the Tinker service needs {KEY}, in the environment or in {DOTENV}; {_REHEARSE}",
            _NEW_KEY,
        )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ServiceError(
            f"`{url}` is not the address of a server", "an address looks like http://127.0.0.1:8000"
        )
    if parts.username or parts.password:
        raise ServiceError(f"the address of the server must not hold a password; use {KEY}")
    return url.rstrip("/")
