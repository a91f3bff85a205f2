"""The embedded engine: Tinker's client interface on PyTorch, in this process.

Read `service` first, the clients; then `waves` and `sampling`, the two ways in which calls reach
the engine's thread, and what that computes: the base model (`base_model`, `lora`, `attention`), its
replies (`decoder`, `scoring`), training (`trainer`, `losses`) and custom losses (`custom_loss`,
`custom_graph`, `custom_operations`). `checkpoints` keeps files.

Import this package before anything imports torch: by default OpenMP's threads spin while they wait,
and when another process wants the same cores, that makes a decoding step of a small model some
twenty times slower.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlc.service.engine.service import LocalService


def open_engine(
    root: Path,
    device: str | None = None,
    threads: int | None = None,
    continuous: bool = False,
    dtype: str | None = None,
) -> LocalService:
    """Open the engine; checkpoints live under ``root``, which is made when first needed. ``device``
    is a torch device name, by default CUDA if there is one. ``threads`` bounds the CPU threads, by
    default to ``OMP_NUM_THREADS``, or the cores this process may use, at most 8. ``continuous``
    lets sampling requests join a running batch, for clients that know nothing of each other;
    otherwise batches follow the program's own order, and the same program gives the same bits.
    ``dtype`` is ``"float32"`` or ``"bfloat16"``, by default RLC_DTYPE, or on CUDA bfloat16 for
    models that were saved in it. Raise ServiceError if there is no such device or dtype."""
    from rlc.service.engine.checkpoints import CheckpointStore
    from rlc.service.engine.service import LocalService, pick_device, read_dtype, start_worker

    store, found = CheckpointStore(Path(root)), pick_device(device)
    kind = read_dtype(dtype)
    return LocalService(found, store, start_worker(threads, continuous), kind)


os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# cuBLAS is deterministic only with a fixed workspace.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
