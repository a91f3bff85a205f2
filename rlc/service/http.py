"""HTTP servers: bodies read within bounds, refusals in the body of each API, the socket."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from hmac import compare_digest
from typing import Any, TypeVar

import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlc.chat import EnvError
from rlc.errors import Error
from rlc.service.chats.prompts import ChatError, FormError, TooLongError
from rlc.service.interface import ServiceError, ServiceLostError
from rlc.service.sockets import BACKLOG, LOOPBACK, bind, is_local_host
from rlc.version import __version__

_OPENAI = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
TOO_LONG = "context_length_exceeded"
_RENEW = {"www-authenticate": 'Bearer error="invalid_token"'}  # the SDK exchanges its key again
_log = logging.getLogger(__name__)


class RefusedRequest(Error):  # noqa: N818 (it is what happened, not what went wrong here)
    """A refusal of a request, in one sentence for the client. The status decides what the SDK does:
    it gives up on 400, 401, 404, 413 and 415, makes another request after 410, and tries 408, 409,
    429 and 5xx again for minutes. ``param`` is the parameter that is refused and ``code`` a word
    for programs, in APIs that have them."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


@contextmanager
def refusing(status: int) -> Iterator[None]:
    """Raise RefusedRequest with this status in place of a ServiceError."""
    try:
        yield
    except ServiceError as error:
        raise RefusedRequest(status, str(error)) from error


def speaks_anthropic(scope: Scope) -> bool:
    """Return whether a request is one of Anthropic's API. Its clients send a header by which it is
    distinguished at paths that both APIs have."""
    path = _path(scope)
    has_header = path.startswith("/v1/") and "anthropic-version" in Headers(scope=scope)
    return has_header or path.startswith(("/anthropic/", "/v1/messages"))


def error_body(
    scope: Scope, status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return the body of an error in OpenAI's API, Anthropic's, or Tinker's."""
    otherwise = "invalid_request_error" if status < 500 else None
    if speaks_anthropic(scope):
        kind = _ANTHROPIC.get(status, otherwise or "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if not _path(scope).startswith(("/v1/", "/oai/")):
        return {"detail": message}
    kind = _OPENAI.get(status, otherwise or "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}
    return {"error": error}


def _path(scope: Scope) -> str:
    path = str(scope["path"])
    return f"/{path.split('/', 3)[-1]}" if path.startswith("/s/") else path


async def _refused(
    request: Request, error: RefusedRequest | ServiceError | EnvError
) -> JSONResponse:
    if not isinstance(error, RefusedRequest):
        message = f"{error.message[:1].upper()}{error.message[1:].rstrip('.')}."
        message += f" ({error.hint})" if error.hint else ""
        status = 503 if isinstance(error, ServiceLostError) else 400  # it may be there again
        code = TOO_LONG if isinstance(error, TooLongError) else None
        code = error.code if isinstance(error, FormError) else code
        param = error.part if isinstance(error, ChatError) else None
        error = RefusedRequest(status, message, param=param, code=code)
    body = error_body(request.scope, error.status, error.message, error.param, error.code)
    return JSONResponse(body, error.status)


async def _no_such_path(request: Request, error: HTTPException) -> JSONResponse:
    details = {
        404: f"This server has no {request.url.path}.",
        405: f"{request.url.path} does not take {request.method}.",
    }
    detail = details.get(error.status_code, error.detail)
    return JSONResponse(error_body(request.scope, error.status_code, detail), error.status_code)


async def _left(request: Request, error: ClientDisconnect) -> Response:  # noqa: ARG001
    return Response(status_code=499)  # nobody reads it


async def _failed(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s failed", request.url.path, exc_info=error)
    message = f"The server failed: {type(error).__name__}."
    return JSONResponse(error_body(request.scope, 500, message), 500)


ON_ERROR: Any = {
    RefusedRequest: _refused,
    ServiceError: _refused,
    EnvError: _refused,
    HTTPException: _no_such_path,
    ClientDisconnect: _left,
    Exception: _failed,
}


def given_key(scope: Scope) -> str | None:
    headers = Headers(scope=scope)
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (bearer if scheme.lower() == "bearer" else scheme) or None


def key_checker(key: str) -> Callable[[str], bool]:
    """Return a check of a request's key, which takes the same time for all keys of a length."""
    return lambda given: compare_digest(given.encode("latin-1"), key.encode())


def require_key(app: ASGIApp, is_right: Callable[[str], bool], free: str | None = None) -> ASGIApp:
    """Refuse requests without the right key, unless their path begins with ``free``."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        is_free = free is not None and scope["type"] == "http" and scope["path"].startswith(free)
        if scope["type"] == "http" and not is_free:
            given = given_key(scope) or ""
            if not is_right(given):
                body = error_body(scope, 401, "The key is not the one of this server.")
                refusal = JSONResponse(body, 401, _RENEW if given.startswith("eyJ") else None)
                return await refusal(scope, receive, send)
        return await app(scope, receive, send)

    return checked


def require_local_host(app: ASGIApp) -> ASGIApp:
    """Refuse requests whose Host header does not name this machine."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_local_host(Headers(scope=scope).get("host", "")):
            message = "Without a key this server is for 127.0.0.1 and localhost only."
            return await JSONResponse(error_body(scope, 403, message), 403)(scope, receive, send)
        return await app(scope, receive, send)

    return checked


JSON = "application/json"
LARGEST_BODY = 64 * 2**20  # the SDK cuts forward_backward at 5 MB unless one datum is larger


_AT_ONCE = 64 * 2**10
_T = TypeVar("_T")


async def off_loop(size: int, work: Callable[[], _T]) -> _T:
    """Return what ``work`` on so many bytes returns. If they are many, it is done in a thread, and
    others are answered meanwhile."""
    return work() if size <= _AT_ONCE else await asyncio.to_thread(work)


async def read_content(request: Request, content_type: str, largest: int = LARGEST_BODY) -> bytes:
    """Read a body. Raise RefusedRequest if it is of another type (415), or has more than
    ``largest`` bytes (413); it is measured first, and none of it is kept then."""
    given = request.headers.get("content-type", "nothing")
    if given.split(";")[0].strip().lower() != content_type:
        raise RefusedRequest(415, f"This path takes {content_type}, not {given}.")
    if encoding := request.headers.get("content-encoding"):
        raise RefusedRequest(415, f"This server takes no compressed bodies ({encoding}).")
    declared = request.headers.get("content-length", "")
    pieces, read, size = [], 0, int(declared) if declared.isdecimal() else 0
    async for piece in request.stream():  # all of it: else the client may not read the answer
        read += len(piece)
        size = max(size, read)
        if size <= largest:
            pieces.append(piece)
        elif read > LARGEST_BODY:
            break
    if size > largest:
        raise RefusedRequest(413, f"The body is larger than {largest // 2**20} MiB.")
    return b"".join(pieces)


def _is_no_lost_client(record: logging.LogRecord) -> bool:
    """Return whether a record of asyncio is not about a client that left in the middle."""
    return record.msg != "socket.send() raised exception."


class Server(uvicorn.Server):
    """Sets ``is_up`` when it has started, and calls ``closing``, which answers the requests that
    wait, before it ends; what that returns is awaited, if it can be."""

    def __init__(self, app: ASGIApp, closing: Callable[[], object] = lambda: None) -> None:
        # An injected fault that drops a connection is not an error worth a line.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").addFilter(_is_no_lost_client)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
            server_header=False,
            headers=[("Server", f"rlc/{__version__}")],
        )
        super().__init__(config)
        self.is_up = threading.Event()
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if inspect.isawaitable(done := self._closing()):
            await done
        await super().shutdown(sockets)

    def serve_on(self, listening: socket.socket) -> None:
        """Serve until a signal on the main thread, or ``should_exit``, ends it."""
        try:
            asyncio.run(self.serve(sockets=[listening]))
        finally:
            self.is_up.set()
            listening.close()


@asynccontextmanager
async def serving(
    app: ASGIApp,
    host: str = LOOPBACK,
    port: int = 0,
    closing: Callable[[], object] = lambda: None,
) -> AsyncIterator[str]:
    """Serve in the running event loop while the block runs; return the address. ``closing`` is as
    of :class:`Server`. Raise ServiceError if the port cannot be listened on."""
    server = Server(app, closing)
    with bind(host, port) as listening:
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup([listening])
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            await server.shutdown([listening])


@contextmanager
def on_a_thread(server: Server) -> Iterator[str]:
    """Serve on a free port in a thread until the block ends, and return the address. Raise
    ServiceError if the server does not start."""
    listening = bind(LOOPBACK, 0)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.serve_on, args=[listening], name="rlc-serve")
    thread.start()
    try:
        server.is_up.wait()
        if not server.started:
            raise ServiceError("the server did not start")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join()
