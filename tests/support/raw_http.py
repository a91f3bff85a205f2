"""Requests to a server without the SDK, which repeats, repairs and translates."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


class Raw:
    """HTTP without the SDK."""

    def __init__(self, url: str) -> None:
        self.address = url.removeprefix("http://")
        self._connection = HTTPConnection(self.address)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON,
        **headers: str,
    ) -> tuple[int, dict[str, Any]]:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"content-type": content_type} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        self._connection.request(method, f"/api/v1/{path}", content, given)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def post(self, path: str, body: Any, **given: str) -> tuple[int, dict[str, Any]]:
        return self.ask("POST", path, body, **given)

    def close(self) -> None:
        self._connection.close()
