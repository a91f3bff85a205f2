"""A server that speaks OpenAI's chat completions and answers as a test says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

# What a request is answered with: a text, or a status with headers and a body.
Answer = str | tuple[int, Mapping[str, str], str]
Script = Callable[[dict[str, Any], int], Answer]


@define(eq=False)
class ScriptedJudge:
    """``asked`` are the bodies of the requests so far, ``keys`` the credentials that came along,
    ``most`` how many were open at once."""

    script: Script
    url: str = ""
    model: str = "judge-1"
    key: str | None = None
    asked: list[dict[str, Any]] = field(factory=list)
    keys: list[str | None] = field(factory=list)
    most: int = 0
    _open: int = 0
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def answer(self, body: dict[str, Any]) -> Answer:
        with self._lock:
            self.asked.append(body)
            number = len(self.asked)
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            return self.script(body, number)
        finally:
            with self._lock:
                self._open -= 1


@contextmanager
def scripted_judge(script: Script, **given: Any) -> Iterator[ScriptedJudge]:
    judge = ScriptedJudge(script, **given)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer takes 40 ms

        def do_GET(self) -> None:
            if self._refused():
                return
            if self.path == "/v1/models":
                self._send(200, {}, json.dumps({"data": [{"id": judge.model}]}))
            else:
                self._send(404, {}, "{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self._refused():
                return
            answer = judge.answer(body)
            if not isinstance(answer, str):
                self._send(*answer)
                return
            message = {"role": "assistant", "content": answer}
            reply = {
                "choices": [{"message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            }
            self._send(200, {}, json.dumps(reply))

        def _refused(self) -> bool:
            given = self.headers.get("authorization")
            judge.keys.append(given)
            if judge.key is not None and given != f"Bearer {judge.key}":
                self._send(401, {}, json.dumps({"error": f"Incorrect API key: {given}"}))
                return True
            return False

        def _send(self, status: int, headers: Mapping[str, str], body: str) -> None:
            data = body.encode()
            self.send_response(status)
            for name, value in {"content-length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judged_text(body: Mapping[str, Any], tag: str = "reply") -> list[str]:
    """The texts of a question within a tag."""
    question = body["messages"][-1]["content"]
    return re.findall(rf"<{tag}[^>]*>\n(.*?)\n</{tag}>", question, re.S)


def counts(letter: str) -> Script:
    """A judge that likes one letter: from 0 to 10 by its share of the reply."""

    def script(body: dict[str, Any], number: int) -> str:
        (reply,) = judged_text(body)
        return f"{number}. <score>{round(10 * reply.count(letter) / max(len(reply), 1), 3)}</score>"

    return script
