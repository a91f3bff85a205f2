"""Adapters in the files of Hugging Face PEFT, of a few layers of the included model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

LAYERS = ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj", "lm_head")


def write_adapter(folder: Path, rank: int = 8, width: int = 4, **config: Any) -> Path:
    """Write an adapter, of layers that have ``width`` inputs and outputs here."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for number, layer in enumerate(LAYERS):
        name = f"base_model.model.{layer}"
        arrays[f"{name}.lora_A.weight"] = np.full((rank, width), 0.1 * number, np.float32)
        arrays[f"{name}.lora_B.weight"] = np.zeros((width, rank), np.float32)
    save_file(arrays, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": rank, "lora_alpha": 32, "base_model_name_or_path": "tiny"}
    text = json.dumps({**written, **config})
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    return folder
