"""Examples that a stage does not learn from, and is scored on."""

from __future__ import annotations

import asyncio
from math import fsum
from typing import TYPE_CHECKING

from attrs import define, field

from rlc.catalog import LIKELIHOOD
from rlc.plan import Training
from rlc.runtime.concurrency import in_thread
from rlc.runtime.journal.meter import Meter
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.examples import is_due, load_examples
from rlc.runtime.updates.datums import TrainingDatum
from rlc.service import TrainingClient

if TYPE_CHECKING:
    from tinker import types

_AT_ONCE = 128  # sequences of a forward pass


@define(eq=False)
class HeldoutExamples:
    """The held-out examples of a stage, as datums; ``meter`` counts what scoring them reads."""

    plan: Training
    training: TrainingClient
    meter: Meter
    datums: list[TrainingDatum]
    _wired: list[list[types.Datum]] = field(factory=list, init=False)  # for forward passes

    async def score(self, step: int) -> dict[str, float]:
        """Return the mean loss of a token, if it is due after a step."""
        if not is_due(self.plan, step):
            return {}
        if not self._wired:  # they are the same each time
            wired = await in_thread(lambda: [one.to_tinker(LIKELIHOOD) for one in self.datums])
            starts = range(0, len(wired), _AT_ONCE)
            self._wired = [wired[start : start + _AT_ONCE] for start in starts]
        forward = self.training.forward
        outputs = await asyncio.gather(*(forward(part, LIKELIHOOD.name) for part in self._wired))
        self.meter.running[step].prefill += sum(len(datum.inputs) for datum in self.datums)
        total = fsum(output.metrics["loss:sum"] for output in outputs)
        return {"heldout/loss": total / fsum(datum.weighed for datum in self.datums)}


async def open_heldout(setup: Setup, stage: Training) -> HeldoutExamples | None:
    """Return the held-out examples of a stage; None if it has none. Raise DataError or RunError as
    :func:`rlc.runtime.stages.examples.load_examples` does."""
    if stage.heldout is None:
        return None
    examples = await load_examples(setup, stage, stage.heldout)
    datums = [datum for example in examples for datum in example]
    return HeldoutExamples(stage, setup.weights.training, setup.meter, datums)
