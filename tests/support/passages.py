"""A server of passages on loopback, which speaks as GEM's search engines do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Passages(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = msgspec.msgpack.decode(self.rfile.read(int(self.headers["Content-Length"])))
        found = [{"document": {"contents": f"About\n{request['query']}"}}] * request["topk"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(msgspec.msgpack.encode({"result": found}))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def passage_server() -> Iterator[str]:
    """Gives the address to ask."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Passages) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/retrieve"
        http.shutdown()
        thread.join()
