"""Errors in the form of the API that a request speaks."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

_OPENAI = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def speaks_anthropic(scope: Scope) -> bool:
    """Whether a request is one of Anthropic's API. Paths that both APIs have are told apart by a
    header that all of its clients send."""
    path = scope["path"]
    if path.startswith("/anthropic/"):
        return True
    return path.startswith("/v1/") and (
        path.startswith("/v1/messages") or "anthropic-version" in Headers(scope=scope)
    )


def error_body(
    scope: Scope, status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error: that of OpenAI's API, of Anthropic's, or of Tinker's."""
    otherwise = "invalid_request_error" if status < 500 else None
    if speaks_anthropic(scope):
        kind = _ANTHROPIC.get(status, otherwise or "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if not scope["path"].startswith(("/v1/", "/oai/")):
        return {"detail": message}
    kind = _OPENAI.get(status, otherwise or "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}
    return {"error": error}
