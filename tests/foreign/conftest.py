"""A server of another package, in an environment of its own; left out unless asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from paths import ROOT
from sdk_leaks import forgive, leaks_stay_here, pytest_sessionfinish  # noqa: F401 (for this folder)

if TYPE_CHECKING:
    from tools.skyrl import SkyRL


@pytest.fixture(scope="session")
def skyrl() -> Iterator[SkyRL]:
    """A server of SkyRL in float32, of the version in RLC_SKYRL_VERSION."""
    from tools.skyrl import VERSION, running

    folder = Path(os.environ.get("RLC_SKYRL") or ROOT / "build" / "skyrl")
    with running(folder, os.environ.get("RLC_SKYRL_VERSION") or VERSION) as server:
        yield server


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "SKYRL_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    forgive(items, Path(__file__).parent)
