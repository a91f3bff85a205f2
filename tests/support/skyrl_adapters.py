"""Adapters of SkyRL's server, in its folder of checkpoints, on the embedded engine."""

from __future__ import annotations

import math
import re
import tarfile
from pathlib import Path
from typing import Any

from rlc.service.engine.lora import LoraAdapter


def unpacked(checkpoints: Path, path: str, folder: Path) -> Path:
    """The folder of an adapter that was saved for samplers under a path of the server."""
    model, kind, name = path.removeprefix("tinker://").split("/")
    with tarfile.open(checkpoints / model / kind / f"{name}.tar.gz") as packed:
        packed.extractall(folder / name, filter="data")
    return folder / name


def tied_norm(training: Any) -> float:
    """The norm of a gradient, where projections of the same input share their matrix A, as SkyRL's
    do."""
    trainer, squares = training.trainer, 0.0
    flat_P = trainer.optimizer.gradient_P
    shared: dict[str, Any] = {}
    for name, (a, b) in LoraAdapter.over(
        trainer.base.layers, trainer.adapter.spec, flat_P
    ).pairs.items():
        squares += float(b.double().square().sum())
        tied = re.sub("[qkv]_proj", "qkv", re.sub("(gate|up)_proj", "gate_up", name))
        shared[tied] = shared.get(tied, 0) + a.double()
    return math.sqrt(squares + sum(float(a.square().sum()) for a in shared.values()))
