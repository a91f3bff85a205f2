"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

import rlc.service.local.torch_settings  # noqa: F401 (before any test imports torch)

# Properties run the same examples everywhere; a slow machine is no failure.
settings.register_profile("rlc", deadline=None, derandomize=True)
settings.load_profile("rlc")
