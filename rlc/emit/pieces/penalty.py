"""Other models, which score what was sampled"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlc.algo import kl_penalty
from rlc.emit.pieces.datums import Trained
from rlc.emit.pieces.job import *
from rlc.emit.pieces.prompts import model_input

AlgorithmError = ValueError  # of rlc's own functions, here


async def penalise(model: Any, made: Sequence[Trained], by: Mapping[str, Any], step: int) -> None:
    """Ask a model for the logprobs of the targets of sequences, and take the distance from it off
    their advantages."""
    mine = [one for one in made if by["env"] in (None, one.episode.env)]
    rows = await asyncio.gather(*(model.compute_logprobs(model_input(o.tokens)) for o in mine))
    for one, row in zip(mine, rows, strict=True):
        one.ref = np.array([logprob or 0.0 for logprob in row[1:]])
    coef, share = by["coef"], (step - 1) / max(STEPS - 1, 1)
    if by["final"] is not None:
        coef = (1 - share) * coef + share * by["final"]
    logprobs, masks = [one.logprobs for one in mine], [one.mask for one in mine]
    ref = [one.ref for one in mine]
    changes = kl_penalty(logprobs, ref, masks, coef, by["discount"], centred=by["centred"])
    for one, change in zip(mine, changes, strict=True):
        one.advantages = one.advantages + change
