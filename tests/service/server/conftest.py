"""The SDK without telemetry, and with waits made short."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import tinker
import tinker._base_client
from tinker.lib import api_future_impl, internal_client_holder, retry_handler
from tinker.lib.public_interfaces import sampling_client


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the SDK waits a tenth of a second for its telemetry."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's waits before it tries again take a millisecond, and its clock goes on as if they
    had not; its background loops keep their pace."""
    clock = _Clock()
    for module in (internal_client_holder, api_future_impl, retry_handler, sampling_client):
        monkeypatch.setattr(module, "asyncio", _Like(asyncio, sleep=clock.sleep))
    monkeypatch.setattr(sampling_client, "time", _Like(time, monotonic=clock.monotonic))
    monkeypatch.setattr(tinker._base_client, "INITIAL_RETRY_DELAY", 0.002)


class _Clock:
    _SHORTEST_OF_LOOPS = 10.0

    def __init__(self) -> None:
        self._skipped = 0.0

    async def sleep(self, seconds: float) -> None:
        if seconds >= self._SHORTEST_OF_LOOPS:
            await asyncio.sleep(seconds)
        else:
            self._skipped += seconds
            await asyncio.sleep(0.001)

    def monotonic(self) -> float:
        return time.monotonic() + self._skipped


class _Like:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
