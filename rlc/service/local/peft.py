"""Adapters in the files of Hugging Face PEFT (0.21).

Its scale is ``lora_alpha / r``; the engine's is that of `rlc.service.local.model.lora.ALPHA`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
import torch

from rlc.catalog.saved_weights import ADAPTER_CONFIG, ADAPTER_PREFIX, ADAPTER_WEIGHTS
from rlc.service.errors import CheckpointError, ServiceError
from rlc.service.local.checkpoints import Arrays
from rlc.service.local.model.base_model import BaseModel
from rlc.service.local.model.lora import ALPHA, Adapter, LoraSpec

_SUFFIX = ".weight"


def peft_key(layer: str, part: str) -> str:
    """The name of ``lora_A`` or ``lora_B`` of a layer."""
    return f"{ADAPTER_PREFIX}{layer}.{part}{_SUFFIX}"


def peft_arrays(arrays: Arrays) -> Arrays:
    """The adapter among the arrays of a checkpoint, as PEFT names it."""
    mark = "adapter/"
    names = {key: key.removeprefix(mark).rpartition(".") for key in arrays if key.startswith(mark)}
    return {peft_key(layer, part): arrays[key] for key, (layer, _, part) in names.items()}


def peft_config(base_model: str, rank: int, keys: Iterable[str]) -> dict[str, Any]:
    """The configuration of an adapter of a rank whose arrays have these names."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": int(ALPHA),
        "lora_dropout": 0.0,
        "bias": "none",
        # As PEFT reads it: every layer whose name ends in one of these.
        "target_modules": sorted({key.split(".lora_")[0].rpartition(".")[2] for key in keys}),
        "inference_mode": True,
    }


def peft_scale(config: Mapping[str, Any]) -> float:
    """The factor of ``B A`` in an adapter of this configuration."""
    rank = float(config["r"])
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def read_peft(base: BaseModel, folder: Path) -> Adapter:
    """Return the adapter in a folder. Layers that it leaves out start fresh, which changes nothing
    at first. Raise ServiceError if it does not fit the base model."""
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        arrays = safetensors.numpy.load_file(folder / ADAPTER_WEIGHTS)
        rank, theirs = int(config["r"]), peft_scale(config)
    except Exception as error:  # damaged files make the readers raise many kinds
        raise CheckpointError(f"The adapter in {folder} cannot be read: {error}.") from error
    layers = dict.fromkeys(
        key.removeprefix(ADAPTER_PREFIX).removesuffix(_SUFFIX).rpartition(".")[0] for key in arrays
    )
    if unknown := [name for name in layers if name not in base.layers]:
        raise ServiceError(f"{base.name} has no layer {unknown[0]}, which {folder} adapts.")
    kinds = {base.layers[name].kind for name in layers}
    spec = LoraSpec(rank, "mlp" in kinds, "attn" in kinds, "unembed" in kinds)
    adapter = Adapter.fresh(base.layers, spec, seed=0)
    factors = {"lora_A": 1.0, "lora_B": theirs / spec.scale}
    for layer in layers:
        for (part, factor), view in zip(factors.items(), adapter.pairs[layer], strict=True):
            array = arrays.get(peft_key(layer, part))
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"{part} of {layer} in {folder} does not fit {base.name}.")
            view.copy_(torch.from_numpy(array) * factor)
    return adapter
