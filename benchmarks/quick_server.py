"""Samples at next to no cost: what each sample takes of a server is answered by its protocol,
after a fixed time; everything else goes to the application of a simulated server.

A client's processor time is what is measured against such a server; that of a whole server, with
which the client would share the cores of one machine, is not.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from functools import lru_cache
from typing import Any, TextIO

import numpy as np
import orjson
from made_up_outputs import LOGPROB
from tinker import types
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rlc.service.server.wire import PROTOBUF, write_sample

_ASAMPLE, _RETRIEVE = b"/api/v1/asample", b"/api/v1/retrieve_future"
_CONFIG = b"/api/v1/client/config"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"


def quick_protocol(
    replies: list[list[int]], seconds: float, events: TextIO, flags: dict[str, Any]
) -> type[HttpToolsProtocol]:
    """The protocol of a server whose samples are ``replies``. ``flags`` are of the SDK, in place of
    the application's own."""
    due: dict[str, tuple[float, bytes]] = {}

    @lru_cache(maxsize=10_000)
    def encoded(which: tuple[int, ...]) -> bytes:
        sequences = [
            types.SampledSequence(
                stop_reason="stop",
                sequence_id="",
                tokens_np=np.array(replies[number], dtype=np.int32),
                logprobs_np=np.full(len(replies[number]), LOGPROB, np.float32),
            )
            for number in which
        ]
        return answer(write_sample(types.SampleResponse(sequences=sequences)), PROTOBUF.encode())

    def answer(content: bytes, kind: bytes = b"application/json") -> bytes:
        return _HEAD % (kind, len(content)) + content

    def promise(body: bytes) -> bytes:
        asked = orjson.loads(body)
        name = f"{asked['sampling_session_id']}/{asked['seq_id']}"
        first, count = zlib.crc32(name.encode()), asked.get("num_samples") or 1
        now = time.time()
        which = tuple((first + number) % len(replies) for number in range(count))
        due[name] = now + seconds, encoded(which)
        events.write(f'{{"at": {now}, "kind": "sample", "seconds": []}}\n')
        ids = [f"{name}/{number}" for number in range(count)]
        return answer(orjson.dumps({"request_id": name, "sample_sequence_ids": ids}))

    class QuickProtocol(HttpToolsProtocol):
        body: bytes | None = None  # of a request that may be answered here

        def on_headers_complete(self) -> None:
            if self.url in (_ASAMPLE, _RETRIEVE) or (flags and self.url == _CONFIG):
                self.body = b""
            else:
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self.body is None:
                super().on_body(body)
            else:
                self.body += body

        def on_message_complete(self) -> None:
            if (body := self.body) is None:
                super().on_message_complete()
                return
            self.body = None
            if self.url == _ASAMPLE:
                self.transport.write(promise(body))
            elif self.url == _CONFIG:
                self.transport.write(answer(orjson.dumps({"pjwt_auth_enabled": True, **flags})))
            elif (known := due.pop(orjson.loads(body)["request_id"], None)) is None:
                super().on_headers_complete()
                super().on_body(body)
                super().on_message_complete()
            else:
                when, reply = known
                left = max(0.0, when - time.time())
                asyncio.get_running_loop().call_later(left, self.transport.write, reply)

    return QuickProtocol
