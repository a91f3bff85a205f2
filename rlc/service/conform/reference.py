"""The model that a server serves, in float64 on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlc.algo.ragged import Floats
from rlc.service import tiny
from rlc.service.errors import ServiceError


def reference_logprobs(source: str, tokens: Sequence[int]) -> Floats:
    """Return the logprob of each token but the first, in nats, shape (T - 1,).

    ``source`` is ``tiny`` or a folder of a Hugging Face model. Computed by transformers and not by
    the embedded engine. Raise ServiceError for a model that cannot be loaded.
    """
    import torch

    with torch.no_grad():
        logits = _model(source)(torch.tensor([list(tokens)])).logits[0, :-1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(list(tokens[1:]))[:, None])[:, 0]
    return np.asarray(own, dtype=np.float64)


@cache
def _model(source: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    folder = tiny.path() if source == "tiny" else Path(source)
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    except (OSError, ValueError) as error:
        raise ServiceError(f"there is no model in {folder}: {error}") from error
