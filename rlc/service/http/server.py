"""The application on a socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from rlc.service.http.sockets import BACKLOG, LOOPBACK, bind
from rlc.service.interface import ServiceError
from rlc.version import __version__


class Server(uvicorn.Server):
    """Sets ``is_up`` when it has started, and calls ``closing``, which answers what waits, before
    it ends."""

    def __init__(self, app: ASGIApp, closing: Callable[[], None] = lambda: None) -> None:
        # An injected fault that drops a connection is not an error worth a line.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
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
        self._closing()
        await super().shutdown(sockets)

    def serve_on(self, listening: socket.socket) -> None:
        """Serve until a signal on the main thread, or ``should_exit``, ends it."""
        try:
            asyncio.run(self.serve(sockets=[listening]))
        finally:
            self.is_up.set()
            listening.close()


@asynccontextmanager
async def serving(app: ASGIApp, host: str = LOOPBACK, port: int = 0) -> AsyncIterator[str]:
    """Serve in the running event loop while the block runs; return the address. Raise ServiceError
    if the port cannot be listened on."""
    server = Server(app)
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
    """Serve on a free port of this machine, in a thread, until the block ends; its address. Raise
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
