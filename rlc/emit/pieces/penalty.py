"""Other models, which score what was sampled"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlc.algo import kl_penalty
from rlc.emit.pieces.datums import Trained
from rlc.emit.pieces.prompts import model_input

AlgorithmError = ValueError  # of rlc's own functions, here


async def score(model: Any, made: Sequence[Trained]) -> None:
    """Ask a model for the logprobs of the targets of sequences."""
    asked = (model.compute_logprobs(model_input(one.tokens)) for one in made)
    rows = await asyncio.gather(*asked)
    for one, row in zip(made, rows, strict=True):
        one.ref = np.array([logprob or 0.0 for logprob in row[1:]])


def penalise(made: Sequence[Trained], coef: float, **settings: Any) -> None:
    """Take the distance from the model that has scored sequences off their advantages."""
    logprobs: list[Any] = [one.logprobs for one in made]
    ref: list[Any] = [one.ref for one in made]
    masks = [one.mask for one in made]
    changes = kl_penalty(logprobs, ref, masks, coef, **settings)
    for one, change in zip(made, changes, strict=True):
        one.advantages = one.advantages + change
