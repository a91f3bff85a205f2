"""Connections that the SDK never closes, which other tests would be blamed for."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from freezing import freeze


def forgive(items: Iterable[pytest.Item], folder: Path) -> None:
    """Let the tests in a folder leave connections behind: the SDK asks for its configuration over
    one."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def collect() -> None:
    """Collect them now, without what the SDK itself says of requests that were under way when a run
    ended."""
    report = sys.unraisablehook

    def others(unraisable: Any) -> None:
        if not unraisable.exc_type.__module__.startswith("tinker"):
            report(unraisable)

    sys.unraisablehook = others
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
            freeze()
    finally:
        sys.unraisablehook = report


@pytest.fixture(autouse=True, scope="module")
def leaks_stay_here() -> Iterator[None]:
    """Collect connections before the tests of others are blamed for them. A `conftest` that imports
    it, and the hook below, has them for its folder."""
    yield
    collect()


def pytest_sessionfinish() -> None:
    """Collect what the last test still held."""
    collect()
