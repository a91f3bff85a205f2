"""The address of the service and its key: from options, the environment and ``.env``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from rlc.catalog import CATALOGUE, DOTENV, Provider, provider, read_dotenv
from rlc.errors import Error
from rlc.plan import TINKER
from rlc.service.interface import ServiceError

KEY, PROJECT = "TINKER_API_KEY", "TINKER_PROJECT_ID"
_LOOPBACK_KEY = "tml-loopback"  # the SDK needs one even for a server that asks for none
_KEY_STARTS = ("tml-", "eyJ")
_REHEARSE = "`--rehearse` runs the same job on the embedded engine without a key"


@frozen
class Endpoint:
    """A server of a provider and the key for it. None leaves the choice to the client: its default
    server, and for the SDK the credentials of ``tinker auth login`` or ``TINKER_CREDENTIAL_CMD``.
    """

    base_url: str | None
    api_key: str | None = field(repr=False)
    project: str | None = None
    provider: Provider = field(factory=lambda: provider(TINKER))

    @property
    def name(self) -> str:
        return self.base_url or f"the {self.provider.title} service"

    @property
    def client_url(self) -> str | None:
        """Return the address that the client is given: of a bridge in this process, if the server
        does not speak Tinker's own API."""
        if self.provider.bridge is None or self.base_url is None:
            return self.base_url
        from rlc.service.bridge.app import bridged

        return bridged(self.base_url)

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.base_url or "").hostname in ("127.0.0.1", "localhost", "::1")


def find_endpoint(
    base_url: str | None = None,
    environ: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    service: str = TINKER,
) -> Endpoint:
    """Return the endpoint of a service by ``base_url``, the environment, the ``.env`` in ``folder``
    (by default the working directory) and the provider's file, in this order of precedence. Raise
    ServiceError if there is no key, one that cannot be right, an invalid address, or an unreadable
    ``.env``."""
    try:
        assigned = read_dotenv((folder or Path.cwd()) / DOTENV).values
    except Error as error:
        raise ServiceError(error.message) from error
    there = provider(service)
    url_variable, variable = there.url_variable, there.key or ""
    names = (variable, url_variable, PROJECT)
    values = {**_settings(assigned, names), **_settings(environ, names)}
    url, key = base_url or values.get(url_variable) or there.url, values.get(variable)
    if url is not None:
        url = _checked_url(url, variable)
    elif not there.finds_itself:  # the SDK would go to Tinker
        message = f"nobody knows the address of the {there.title} service"
        raise ServiceError(message, f"give --base-url, or set {url_variable}")
    keys_at = f"make a key at {there.keys_at}" if there.keys_at else None
    if key is None and (not variable or Endpoint(url, None).is_loopback):
        key = _LOOPBACK_KEY
    elif key is None and there.models == CATALOGUE:
        _require_other_credentials(environ, keys_at)
    elif key is None:
        raise ServiceError(_no_key(there), keys_at)
    elif there.module is None and not key.startswith(_KEY_STARTS):
        starts = " or ".join(f"`{start}`" for start in _KEY_STARTS)
        raise ServiceError(f"{variable} is not a Tinker key: one starts with {starts}", keys_at)
    elif not (key.isascii() and key.isprintable() and " " not in key):
        raise ServiceError(f"{variable} holds a space or a character that no key has", keys_at)
    return Endpoint(url, key, values.get(PROJECT), there)


def _no_key(there: Provider) -> str:
    where = f"in the environment or in {DOTENV}"
    return f"the {there.title} service needs {there.key}, {where}; {_REHEARSE}"


def _settings(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    stripped = {name: values.get(name, "").strip() for name in names}
    return {name: value for name, value in stripped.items() if value}


def _require_other_credentials(environ: Mapping[str, str], keys_at: str | None) -> None:
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
        raise ServiceError(_no_key(provider(TINKER)), keys_at)


def _checked_url(url: str, key: str) -> str:
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
        raise ServiceError(
            f"the address of the server must not hold a password; use {key or 'a key'}"
        )
    return url.rstrip("/")
