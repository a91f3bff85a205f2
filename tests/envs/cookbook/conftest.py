"""What the builders of the tests remember is forgotten before each test."""

from __future__ import annotations

import cookbook_builders
import pytest


@pytest.fixture(autouse=True)
def fresh() -> None:
    cookbook_builders.cleaned.clear()
