"""What a recipe's own loss computes over all sequences of a step, before the first gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import evolve

from rlc.algo import Program, batch_values, needs_batch
from rlc.catalog import LIKELIHOOD, loss_traits
from rlc.plan import LossPlan
from rlc.runtime.concurrency import in_thread
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.minibatch import Minibatch
from rlc.seeds import derive_seed
from rlc.service import TrainingClient


async def with_batch_values(
    training: TrainingClient, loss: LossPlan, minibatches: Sequence[Minibatch], seed: int
) -> tuple[Sequence[Minibatch], int]:
    """Return the minibatches of a whole step with what their loss computes over all of them, and
    how many tokens were read for it.

    Where the loss reads the trainer's logprobs there, a forward pass brings them, as they are
    before the first of the updates. What is drawn depends on ``seed`` and on the names of the
    sequences, not on their order.
    """
    if loss.program is None or not needs_batch(loss.program):
        return minibatches, 0
    datums = [datum for minibatch in minibatches for datum in minibatch.datums]
    if not datums:
        return minibatches, 0
    trainer_DT: list[npt.NDArray[np.float64] | None] = [None] * len(datums)
    read = 0
    if loss_traits(loss).forward:
        wired = await in_thread(lambda: [datum.to_tinker(LIKELIHOOD) for datum in datums])
        output = await training.forward(wired, LIKELIHOOD.name)
        trainer_DT = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
        read = sum(len(datum.inputs) for datum in datums)
    made = await in_thread(_computed, loss.program, datums, trainer_DT, seed)
    rest = iter(made)
    return [evolve(m, datums=[next(rest) for _ in m.datums]) for m in minibatches], read


def _computed(
    program: Program,
    datums: Sequence[TrainingDatum],
    trainer_DT: Sequence[npt.NDArray[np.float64] | None],
    seed: int,
) -> list[TrainingDatum]:
    sequences, orders = [], []
    for datum, trainer_T in zip(datums, trainer_DT, strict=True):
        sequences.append(datum.sampled_inputs(trainer_T))
        stream = np.random.default_rng(derive_seed(seed, *datum.name))
        orders.append(stream.random(datum.sampled))
    found = batch_values(program, sequences, orders)
    return [evolve(datum, batch=known) for datum, known in zip(datums, found, strict=True)]
