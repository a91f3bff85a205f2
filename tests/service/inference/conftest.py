"""The SDK without telemetry."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the SDK waits a tenth of a second for its telemetry."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
