"""An adapter added to its base model: a model of transformers that needs neither rlc nor PEFT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_merged(base: Path, adapter: Path, folder: Path, dtype: str | None = None) -> None:
    """Write the model in ``base``, a folder of transformers, with the adapter of PEFT in
    ``adapter`` added to its weights, in the precision ``dtype`` (``"float32"``), or in that of the
    base model. The sums are computed in float64.

    An output layer that shares its weights with the embedding gets its own, since only the one is
    adapted.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from rlc.catalog import ADAPTER_CONFIG, ADAPTER_PREFIX, ADAPTER_WEIGHTS
    from rlc.service import peft_key, peft_scale

    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype=dtype or "auto")
    config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    mark, arrays = ".lora_A.", load_file(str(adapter / ADAPTER_WEIGHTS))
    layers = [key.removeprefix(ADAPTER_PREFIX).partition(mark)[0] for key in arrays if mark in key]
    output = model.get_output_embeddings()
    with torch.no_grad():
        for layer in layers:
            module = model.get_submodule(layer)
            if module is output and model.config.tie_word_embeddings:
                module.weight = torch.nn.Parameter(module.weight.clone())
                model.config.tie_word_embeddings = False
            a, b = (arrays[peft_key(layer, part)].double() for part in ("lora_A", "lora_B"))
            merged = module.weight.double() + peft_scale(config) * (b @ a)
            module.weight.copy_(merged.to(module.weight.dtype))
    model.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(base)).save_pretrained(str(folder))
