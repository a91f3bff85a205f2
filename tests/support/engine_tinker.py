"""The local Tinker server under a test's eye: what was asked, and what is broken on purpose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import http_testing as testing
from attrs import define, field
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlc.service.server.app import build_app
from rlc.service.server.backend import Backend
from rlc.service.server.faults import Faults

MODEL = "Qwen/Qwen3-8B"
FAULTS = Faults(too_many=0.05, errors=0.05, drops=0.05, slow=0.05, slow_seconds=0.05, seed=1)


@define(eq=False)
class EngineTinker:
    """A running server, which serves the tiny model as ``MODEL`` and saves under ``root``.

    ``broken`` gives all endpoints that begin with a key another answer. ``requests`` holds what
    was asked, endpoint and body; ``answers`` counts statuses, and connections ``"dropped"``.
    """

    root: Path
    url: str = ""
    broken: dict[str, tuple[int, dict[str, Any]]] = field(factory=dict)
    requests: list[tuple[str, dict[str, Any]]] = field(factory=list)
    answers: Counter[int | str] = field(factory=Counter)
    backend: Backend | None = None
    _app: ASGIApp | None = None

    def build(self, backend: Backend, key: str | None) -> ASGIApp:
        """The server's application, with this around it."""
        self._app = build_app(backend, key)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        endpoint = scope["path"].removeprefix("/api/v1/")
        raw = await _body(receive)
        is_json = raw.startswith(b"{")
        self.requests.append((endpoint, json.loads(raw) if is_json else {}))
        answer = next((a for key, a in self.broken.items() if endpoint.startswith(key)), None)
        if answer is not None:
            await JSONResponse(answer[1], answer[0])(scope, receive, send)
            return
        await self._app(scope, _again(raw, receive), self._counted(send))

    def _counted(self, send: Send) -> Send:
        status: int | str = "dropped"

        async def count(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                self.answers["dropped"] += 1  # until there is a body
                status = message["status"]
            elif status != "dropped":
                self.answers["dropped"] -= 1
                self.answers[status] += 1
                status = "dropped"
            await send(message)

        return count

    def checkpoints(self) -> list[str]:
        """The paths of all saved states, in order."""
        files = sorted(self.root.rglob("*.safetensors"))
        return [f"tinker://{file.relative_to(self.root).with_suffix('')}" for file in files]

    def asked(self, endpoint: str) -> list[dict[str, Any]]:
        """The bodies of all requests to an endpoint."""
        return [body for asked, body in self.requests if asked == endpoint]


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(raw: bytes, receive: Receive) -> Receive:
    """A body that was read already, as if it had not been."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return again


@contextmanager
def engine_tinker(
    root: Path,
    faults: Faults = Faults(),  # noqa: B008
    custom_losses: bool = True,
) -> Iterator[EngineTinker]:
    """A server on a free port of this machine."""
    server = EngineTinker(root)
    opened = testing.running(root, faults, custom_losses=custom_losses)
    with patch.object(testing, "build_app", server.build), opened as running:
        server.url, server.backend = running.url, running.backend
        yield server
