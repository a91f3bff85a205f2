"""A server that speaks just enough of Tinker's protocol to be rude in every way.

It opens sessions and makes models that cannot compute; ``answers`` replaces what an endpoint
says by a status and a body.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any] | bytes]  # bytes are protobuf


class StubTinker(ThreadingHTTPServer):
    """``requests`` holds what was asked: endpoint and body, in order."""

    daemon_threads = True

    def __init__(self, models: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.models = models
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.futures: dict[str, Answer] = {}
        self.connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def drop_connections(self) -> None:
        """Close what is still open, as a process that ends does."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, endpoint: str, body: dict[str, Any], raw: bytes) -> Answer | None:
        """The answer to a request; None closes the connection without one."""
        self.requests.append((endpoint, body))
        if endpoint in self.answers:
            return self.answers[endpoint]
        if endpoint == "retrieve_future":
            return self.futures[body["request_id"]]
        if endpoint == "get_server_capabilities":
            return 200, {"supported_models": self.models}
        if endpoint == "create_session":
            return 200, {"type": "create_session", "session_id": "session-1"}
        if endpoint == "create_model":
            return self._promise({"model_id": "session-1:train:0", "type": "create_model"})
        if endpoint == "get_info":
            data = {"model_name": "Qwen/Qwen3-8B", "tokenizer_id": "/nowhere"}
            return 200, {"type": "get_info", "model_id": body["model_id"], "model_data": data}
        if endpoint == "create_sampling_session":
            return 200, {"type": "create_sampling_session", "sampling_session_id": "sampler-1"}
        if endpoint == "asample":
            count = body["num_samples"]
            return self._promise({}, sample_sequence_ids=[f"s{i}" for i in range(count)])
        return (404, {"detail": endpoint}) if endpoint == "client/dynamic_config" else (200, {})

    def _promise(self, result: dict[str, Any], **more: Any) -> Answer:
        request_id = f"future-{len(self.futures)}"
        self.futures[request_id] = (200, result)
        return 200, {"request_id": request_id, **more}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer takes 40 ms
    server: StubTinker

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)

    def _reply(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        is_json = "json" in self.headers.get("content-type", "")
        body = json.loads(raw) if raw and is_json else {}
        found = self.server.answer(self.path.removeprefix("/api/v1/"), body, raw)
        if found is None:
            self.close_connection = True
            return
        status, answer = found
        kind = "x-protobuf" if isinstance(answer, bytes) else "json"
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", f"application/{kind}")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _reply

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def stub_tinker(*models: dict[str, Any]) -> Iterator[StubTinker]:
    """A stub on a free port of this machine."""
    usual = {"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768}
    server = StubTinker(list(models) or [{**usual, "trainable": True, "sampleable": True}])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
