"""Samples at next to no cost: in front of a simulated server, what each sample takes is answered
from here, after a fixed time, without the application behind it.

A client's processor time is what is measured against such a server; that of a whole server, which
the two would otherwise share cores with, is not.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TextIO

import numpy as np
import orjson
from made_up_outputs import LOGPROB
from tinker import types

from rlc.service.server.wire import PROTOBUF, write_sample

_JSON = [(b"content-type", b"application/json")]
_PROTO = [(b"content-type", PROTOBUF.encode())]


def quick(
    app: Any, replies: list[list[int]], seconds: float, events: TextIO, flags: dict[str, Any]
) -> Callable[..., Any]:
    """The ASGI application; ``flags`` are of the SDK, in place of the application's own."""
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
        return write_sample(types.SampleResponse(sequences=sequences))

    async def body(receive: Any) -> bytes:
        message = await receive()
        content: bytes = message["body"]
        while message.get("more_body"):
            message = await receive()
            content += message["body"]
        return content

    async def answer(send: Any, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": content})

    async def front(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path == "/api/v1/asample":
            asked = orjson.loads(await body(receive))
            name = f"{asked['sampling_session_id']}/{asked['seq_id']}"
            first, count = zlib.crc32(name.encode()), asked.get("num_samples") or 1
            which = tuple((first + number) % len(replies) for number in range(count))
            now = time.time()
            due[name] = now + seconds, encoded(which)
            events.write(f'{{"at": {now}, "kind": "sample", "seconds": []}}\n')
            ids = [f"{name}/{number}" for number in range(count)]
            promise = {"request_id": name, "sample_sequence_ids": ids}
            return await answer(send, _JSON, orjson.dumps(promise))
        if path == "/api/v1/retrieve_future":
            content = await body(receive)
            name = orjson.loads(content)["request_id"]
            if name in due:
                when, reply = due[name]
                if (left := when - time.time()) > 0:
                    await asyncio.sleep(left)
                due.pop(name, None)
                return await answer(send, _PROTO, reply)
            return await app(scope, replayed(content, receive), send)
        if path == "/api/v1/client/config" and flags:
            given = {"pjwt_auth_enabled": True, **flags}
            return await answer(send, _JSON, orjson.dumps(given))
        return await app(scope, receive, send)

    return front


def replayed(content: bytes, receive: Any) -> Callable[[], Any]:
    """A body that was read is there to be read again."""
    messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def again() -> Any:
        return messages.pop() if messages else await receive()

    return again
