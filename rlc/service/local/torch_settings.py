"""Environment variables that must be set before torch is first imported; import this first.

By default OpenMP's threads spin while they wait. When another process wants the same cores,
that makes a decoding step of a small model some twenty times slower.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# cuBLAS is deterministic only with a fixed workspace.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
