"""What a request must be before the engine spends anything on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tinker import types

from rlc.service.errors import ServiceError
from rlc.service.local.model.packing import IntArray

if TYPE_CHECKING:
    from rlc.service.local.model.base import BaseModel


def check_tokens(model_input: types.ModelInput, base: BaseModel, where: str) -> IntArray:
    """The token ids of an input.

    Raises ServiceError for an input that is empty, holds images or sounds, has an id outside the
    vocabulary, or is longer than the model's context.
    """
    try:
        tokens = np.asarray(model_input.to_ints(), dtype=np.int64)
    except ValueError as error:
        told = f"{where}: the local engine reads text only, no images or sounds."
        raise ServiceError(told) from error
    if not len(tokens):
        raise ServiceError(f"{where} has no tokens.")
    if tokens.min() < 0 or tokens.max() >= base.vocabulary:
        raise ServiceError(
            f"{where}: token {int(tokens[(tokens < 0) | (tokens >= base.vocabulary)][0])} is "
            f"outside the vocabulary of {base.vocabulary} tokens."
        )
    if len(tokens) > base.context:
        raise ServiceError(
            f"{where} has {len(tokens)} tokens, more than the model's context of {base.context}."
        )
    return tokens
