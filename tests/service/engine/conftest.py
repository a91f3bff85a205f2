"""An engine of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_support import engine

from rlc.service.engine.service import LocalService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    opened = engine(tmp_path)
    yield opened
    opened.close()
