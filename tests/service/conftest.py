"""One server for the tests that need nothing special of it, and the SDK's clients for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import tinker
    from http_testing import Running
    from raw_http import Raw

KEY = "tml-local"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from http_testing import running

    with running(tmp_path_factory.mktemp("served")) as opened:
        yield opened


@pytest.fixture(scope="session")
def caller(server: Running) -> str:
    """The path of a model that calls a tool; its training takes six seconds."""
    from tool_caller import train_tool_caller

    return train_tool_caller(server.url)


@pytest.fixture
def sdk(server: Running) -> Iterator[tinker.ServiceClient]:
    import tinker

    with tinker.ServiceClient(base_url=server.url, api_key=KEY) as client:
        yield client


@pytest.fixture
def rest(server: Running) -> tinker.RestClient:
    import tinker

    return tinker.RestClient(base_url=server.url, api_key=KEY)


@pytest.fixture
def raw(server: Running) -> Iterator[Raw]:
    from raw_http import Raw

    connection = Raw(server.url)
    yield connection
    connection.close()
