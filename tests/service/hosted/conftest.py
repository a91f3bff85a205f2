"""The SDK's waits made short: its retries happen as they would, only sooner."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tinker._base_client
import tinker.lib.api_future_impl
import tinker.lib.internal_client_holder
import tinker.lib.public_interfaces.sampling_client
from sdk_leaks import forgive, leaks_stay_here, pytest_sessionfinish  # noqa: F401 (for this folder)

_HASTE = 20
_HEARTBEAT, _REFRESH = 10, 300  # background loops of the SDK; hurrying them would only make noise


class HurriedClock:
    """Stands in for ``asyncio`` and ``time`` in the SDK: a wait for a retry takes a millisecond
    and moves the clock on, further than it would have, so that five minutes of retries are few."""

    def __init__(self) -> None:
        self.skipped = 0.0
        self.asyncio = _Like(asyncio, sleep=self.sleep)
        self.time = _Like(
            time,
            time=lambda: time.time() + self.skipped,
            monotonic=lambda: time.monotonic() + self.skipped,
        )

    async def sleep(self, seconds: float) -> None:
        if seconds == _HEARTBEAT or seconds >= _REFRESH:
            await asyncio.sleep(seconds)
        else:
            self.skipped += _HASTE * seconds
            await asyncio.sleep(0.001)


class _Like(SimpleNamespace):
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        super().__init__(_module=module, **names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    forgive(items, Path(__file__).parent)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> HurriedClock:
    clock = HurriedClock()
    for module in (
        tinker.lib.internal_client_holder,
        tinker.lib.api_future_impl,
        tinker.lib.public_interfaces.sampling_client,
    ):
        monkeypatch.setattr(module, "asyncio", clock.asyncio)
        monkeypatch.setattr(module, "time", clock.time)
    monkeypatch.setattr(tinker._base_client, "INITIAL_RETRY_DELAY", 0.002)
    monkeypatch.setattr(tinker._base_client, "MAX_RETRY_DELAY", 0.004)
    return clock


@pytest.fixture(autouse=True)
def _own_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test uses, or depends on, the keys of whoever runs it."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "TINKER_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # ~/.tinker/credentials.json
