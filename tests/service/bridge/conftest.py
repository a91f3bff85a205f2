"""Servers of SkyRL for one test each, over one engine, and bridges that wait shortly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sdk_leaks import forgive, leaks_stay_here, pytest_sessionfinish  # noqa: F401 (for this folder)

import rlc.service.engine
from rlc.service.bridge import app, models, skyrl

if TYPE_CHECKING:
    from bridge_support import Start
    from skyrl_server import SkyRLServer

    from rlc.service.engine.service import LocalService


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], LocalService]]:
    """Opens the engine or its double, once each."""
    with ExitStack() as stack:

        @cache
        def opened(opens: Any) -> Any:
            folder = tmp_path_factory.mktemp("engine")
            return stack.enter_context(closing(opens(folder, "cpu", threads=1, continuous=True)))

        yield opened


@pytest.fixture
def skyrl_engine(engines: Callable[[Any], LocalService]) -> LocalService:
    """The one that this test wants."""
    return engines(rlc.service.engine.open_engine)


@pytest.fixture
def start(skyrl_engine: LocalService) -> Iterator[Start]:
    """Starts a stand-in, with the options of `skyrl_server.SkyRLServer`."""
    from skyrl_server import skyrl_server

    with ExitStack() as running:
        yield lambda **given: running.enter_context(skyrl_server(skyrl_engine, **given))


@pytest.fixture(params=["0.3", "0.4"])
def server(request: pytest.FixtureRequest, start: Start) -> SkyRLServer:
    """A server of each version."""
    return start(in_protobuf=request.param == "0.4")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bridges of one test alone, which do not wait long before they try again."""
    monkeypatch.setattr(skyrl, "_PAUSE", 0.01)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    yield
    app.close_bridges()


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls of the SDK that the bridge answers within moments, with HTTP 408."""
    monkeypatch.setattr(models, "_POLL_SECONDS", 0.03)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    forgive(items, Path(__file__).parent)
