"""The embedded engine: Tinker's client interface on PyTorch, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlc.service.local import runtime_env as runtime_env

if TYPE_CHECKING:
    from rlc.service.local.service import LocalService


def connect(
    root: Path, device: str | None = None, threads: int | None = None, live: bool = False
) -> LocalService:
    """Open the engine; checkpoints live under ``root``, which is made when first needed.

    ``device`` is a torch device name; None takes CUDA where there is one, else the CPU.
    ``threads`` bounds the CPU threads; None takes ``OMP_NUM_THREADS``, or the cores this
    process may use, at most 8. ``live`` lets sampling requests join a running batch, for clients
    that know nothing of each other; otherwise the batches follow the program's own order, and
    the same program gives the same bits. Raises ServiceError for a device that is not there.
    """
    from rlc.service.local.service import LocalService

    return LocalService(Path(root), device=device, threads=threads, live=live)
