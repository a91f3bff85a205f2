"""A server for tests, in a thread of their own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from attrs import frozen
from plain_service import is_plain
from server_account import Account
from server_recordings import Recordings

import rlc.service.engine
from rlc.service.http import Server, on_a_thread
from rlc.service.server.app import build_app
from rlc.service.server.backend import Backend, load_models
from rlc.service.server.faults import Disturbances, Faults, Latency


@frozen
class Running:
    """A server that is up."""

    url: str
    backend: Backend
    account: Account


@contextmanager
def running_server(
    checkpoints: Path,
    faults: Faults = Faults(),  # noqa: B008 (immutable)
    latency: Latency = Latency(),  # noqa: B008
    models: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The base URL of a server on a free port of this machine, until the block ends.

    ``models`` maps names to ``tiny`` or folders; by default ``tiny`` and ``Qwen/Qwen3-8B`` are
    both the tiny model.
    """
    with running(checkpoints, faults, latency, models) as server:
        yield server.url


@contextmanager
def one_of_each(folder: Path, models: Mapping[str, str]) -> Iterator[Callable[[], str]]:
    """What returns the base URL of a server on the engine, or for a test that wants it on the
    double; each is started when first asked for."""
    with ExitStack() as stack:

        @cache
        def start(plain: bool) -> str:
            return stack.enter_context(running_server(folder / f"plain-{plain}", models=models))

        yield lambda: start(is_plain())


@contextmanager
def running(
    checkpoints: Path,
    faults: Faults = Faults(),  # noqa: B008
    latency: Latency = Latency(),  # noqa: B008
    models: Mapping[str, str] | None = None,
    key: str | None = None,
    custom_losses: bool = True,
) -> Iterator[Running]:
    """As `running_server`, with the server's state."""
    opens = rlc.service.engine.open_engine  # or that of the double, if a test wants it
    engine = opens(checkpoints, device="cpu", threads=1, continuous=True)
    try:
        names = models or {"tiny": "tiny", "Qwen/Qwen3-8B": "tiny"}
        served = asyncio.run(load_models(engine, names))
        account = Account(checkpoints / "audit.jsonl")
        disturbances = Disturbances(faults, latency)
        backend = Backend(engine, served, disturbances, custom_losses, [account, Recordings()])
        with on_a_thread(Server(build_app(backend, key), backend.futures.close)) as url:
            yield Running(url, backend, account)
    finally:
        engine.close()
