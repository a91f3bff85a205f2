"""What the server signs: identities as JWTs (RFC 7519, HS256), and URLs that need no key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from attrs import field, frozen

SIGNED = "/signed/"  # under it, the signature of an address is its key
USER = "tml:organization_user:local"
ORGANIZATION = "local"
PROJECT = "local"  # of sessions that name none
_LIFETIME = 3600.0
_HEADER = {"alg": "HS256", "typ": "JWT"}


@frozen
class Signer:
    """Signs with a secret of this process: what it signed is worth nothing after a restart."""

    _secret: bytes = field(factory=lambda: secrets.token_bytes(32), repr=False)

    def token(self) -> str:
        """Return an identity for an hour; the SDK exchanges it for another in time."""
        now = int(time.time())
        claims = {"sub": USER, "org_id": ORGANIZATION, "iat": now, "exp": now + int(_LIFETIME)}
        content = f"{_encode(_HEADER)}.{_encode(claims)}"
        return f"{content}.{_base64(self._mac(content))}"

    def has_signed(self, token: str) -> bool:
        """Return whether this is an identity from here that has not expired."""
        content, _, signature = token.rpartition(".")
        if not _same(signature, _base64(self._mac(content))):
            return False
        claims = json.loads(base64.urlsafe_b64decode(content.split(".")[1] + "=="))
        return bool(claims["exp"] > time.time())

    def url(self, base_url: str, path: str) -> tuple[str, datetime]:
        """Return an address under :data:`SIGNED` that is valid for an hour, and when it expires."""
        expires = int(time.time() + _LIFETIME)
        signature = self._mac(f"{path}?{expires}").hex()
        address = f"{base_url.rstrip('/')}{SIGNED}{quote(path)}"
        expiry = datetime.fromtimestamp(expires, tz=UTC)
        return f"{address}?expires={expires}&signature={signature}", expiry

    def has_signed_path(self, path: str, expires: str, signature: str) -> bool:
        """Return whether `url` made an address with these parts that has not expired."""
        if not _same(signature, self._mac(f"{path}?{expires}").hex()):
            return False
        return int(expires) > time.time()  # ours, as it is signed

    def _mac(self, content: str) -> bytes:
        return hmac.digest(self._secret, content.encode(errors="replace"), hashlib.sha256)


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def _encode(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
