"""Servers of SkyRL for one test each, over one engine, and bridges that wait shortly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sdk_leaks import forgive, leaks_stay_here, pytest_sessionfinish  # noqa: F401 (for this folder)

from rlc.service.bridge import app, models, skyrl

if TYPE_CHECKING:
    from bridge_support import Start
    from skyrl_server import SkyRLServer

    from rlc.service.engine.service import LocalService


@pytest.fixture(scope="module")
def skyrl_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    from rlc.service.engine import open_engine

    engine = open_engine(tmp_path_factory.mktemp("engine"), "cpu", threads=1, continuous=True)
    yield engine
    engine.close()


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
