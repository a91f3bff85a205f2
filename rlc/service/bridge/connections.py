"""Requests over kept connections: most of what a bridge adds to a reply, so that they are no more
than a parser and a future."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import orjson
from attrs import define, field, frozen
from httptools import HttpParserError, HttpResponseParser

from rlc.errors import Error

_IDLE_SECONDS = 4.0  # uvicorn closes a connection that has been idle for 5


class UnreachedError(Error):
    """The server has not got the request."""


class BrokenError(Error):
    """The connection broke, or time was over, before the whole answer was there."""


@frozen
class Answer:
    """What a server answered; ``kind`` is the type of the content."""

    status: int
    kind: str
    content: bytes

    def json(self) -> Any:
        return orjson.loads(self.content)


@define(eq=False)
class Connections:
    """As many connections to a server as there are requests at once, in one event loop."""

    _to: SplitResult = field(converter=urlsplit)
    _idle: list[_Connection] = field(factory=list, init=False)

    async def ask(
        self, method: str, path: str, content: bytes, kind: str, seconds: float
    ) -> Answer:
        """Make a request. Raise UnreachedError or BrokenError."""
        head = (
            f"{method} {quote(self._to.path + path)} HTTP/1.1\r\nhost: {self._to.netloc}\r\n"
            f"content-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        used = self._kept() or await self._opened(seconds)
        try:
            async with asyncio.timeout(seconds):
                return await used.send(head.encode() + content)
        except (OSError, TimeoutError) as error:
            raise BrokenError(str(error)) from error
        finally:
            used.rest()

    def _kept(self) -> _Connection | None:
        """Return an open connection that has not been idle for long."""
        latest = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle:
            if (found := self._idle.pop()).since > latest:
                return found
            found.transport.close()
        return None

    async def _opened(self, seconds: float) -> _Connection:
        secure = self._to.scheme == "https"
        address = str(self._to.hostname), self._to.port or (443 if secure else 80)
        make, loop = partial(_Connection, self._idle), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                return (await loop.create_connection(make, *address, ssl=secure or None))[1]
        except (OSError, TimeoutError) as error:
            raise UnreachedError(str(error)) from error

    def close(self) -> None:
        for one in self._idle:
            one.transport.close()


@define(eq=False)
class _Connection(asyncio.Protocol):
    """A connection, and the answer that it waits for. ``since``: when the last one was there."""

    idle: list[_Connection]
    transport: asyncio.Transport = field(init=False)
    since: float = field(init=False)
    _answer: asyncio.Future[Answer] | None = field(default=None, init=False)
    _is_whole: bool = field(default=False, init=False)  # and the server keeps the connection
    _parser: Any = field(init=False)
    _kind: str = field(init=False)
    _pieces: list[bytes] = field(init=False)

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        self._parser, self._kind, self._pieces = HttpResponseParser(self), "", []
        self._is_whole = False
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            self._answer.set_exception(ConnectionResetError("the server closed the connection"))
        else:
            self.transport.write(request)
        return self._answer

    def rest(self) -> None:
        """Keep the connection if the whole answer was there and the server keeps it, too."""
        if self._is_whole and not self.transport.is_closing():
            self.since = asyncio.get_running_loop().time()
            self.idle.append(self)
        else:
            self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        with suppress(ValueError):
            self.idle.remove(self)
        self._fail(ConnectionResetError(str(exc or "the server closed the connection")))

    def _fail(self, error: OSError) -> None:
        self.transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._kind = value.decode("latin-1").partition(";")[0].strip().lower()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            status, content = self._parser.get_status_code(), b"".join(self._pieces)
            self._answer.set_result(Answer(status, self._kind, content))
            self._is_whole = self._parser.should_keep_alive()
