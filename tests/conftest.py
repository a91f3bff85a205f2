"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# Properties run the same examples everywhere; a slow machine is no failure.
settings.register_profile("rlc", deadline=None, derandomize=True)
settings.load_profile("rlc")
