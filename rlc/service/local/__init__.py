"""The embedded engine: Tinker's client interface on PyTorch, in this process.

To read it: `clients` and `service`, what a program holds; `wave_worker` and `continuous_worker`,
the two ways in which calls reach the engine's thread; then what that thread computes, with the
base model (`model/`), sampling (`sampling/`), training (`training/`) and losses of a user's own
(`custom/`). `checkpoints` keeps files, and `torch_settings` must be imported before torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlc.service.local import torch_settings as torch_settings

if TYPE_CHECKING:
    from rlc.service.local.service import LocalService


def connect(
    root: Path,
    device: str | None = None,
    threads: int | None = None,
    continuous: bool = False,
    dtype: str | None = None,
) -> LocalService:
    """Open the engine; checkpoints live under ``root``, which is made when first needed.

    ``device`` is a torch device name; None takes CUDA if there is one, else the CPU.
    ``threads`` bounds the CPU threads; None takes ``OMP_NUM_THREADS``, or the cores this
    process may use, at most 8. ``continuous`` lets sampling requests join a running batch, for
    clients that know nothing of each other; otherwise the batches follow the program's own
    order, and the same program gives the same bits. ``dtype`` is ``"float32"`` or ``"bfloat16"``;
    None takes RLC_DTYPE, or on CUDA bfloat16 for models that were saved in it, else float32.
    Raise ServiceError if the device is not there, or there is no such dtype.
    """
    from rlc.service.local.checkpoints import CheckpointStore
    from rlc.service.local.service import LocalService, pick_device, read_dtype, start_worker

    store, found = CheckpointStore(Path(root)), pick_device(device)
    kind = read_dtype(dtype)
    return LocalService(found, store, start_worker(threads, continuous), kind)
