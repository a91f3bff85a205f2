"""A supervised stage: a function for each kind of node in its step graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from attrs import define

from rlc.plan.records import SftPlan
from rlc.runtime.graph import Inputs, NodeContext, StepFunction, StepOutcome
from rlc.runtime.stages.base import Stage, StepReport
from rlc.runtime.stages.examples import Example
from rlc.runtime.updates import optimizer
from rlc.runtime.updates.minibatch import Minibatch
from rlc.runtime.updates.optimizer import PendingGradients, UpdateResult
from rlc.seeds import derive_seed


@define(eq=False)
class SftStage(Stage):
    """One supervised stage in progress.

    Each epoch has a random order of the examples, and a step takes the next of them, so the
    examples of a step depend on its number alone.
    """

    plan: SftPlan
    examples: list[Example]

    def functions(self) -> dict[str, StepFunction]:
        return {
            "examples": self.next_examples,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "checkpoint": self.weights.checkpoint,
        }

    async def next_examples(self, node: NodeContext, inputs: Inputs) -> Minibatch:
        chosen = (self.examples[index] for index in self._indices(node.step))
        return Minibatch([datum for example in chosen for datum in example], {})

    def _indices(self, step: int) -> Iterator[int]:
        """Yield the examples of a step: the next ``batch`` of all epochs one after another."""
        size, orders = len(self.examples), dict[int, npt.NDArray[np.int64]]()
        for number in range((step - 1) * self.plan.batch, step * self.plan.batch):
            epoch, place = divmod(number, size)
            if epoch not in orders:
                seed = derive_seed(self.seed, "examples", self.plan.name, epoch)
                orders[epoch] = np.random.default_rng(seed).permutation(size)
            yield int(orders[epoch][place])

    async def forward_backward(self, node: NodeContext, inputs: Inputs) -> PendingGradients:
        """Submit the gradient without waiting, so that the optimiser step follows at once."""
        return await optimizer.submit(
            self.weights.training, self.plan, node.step, [inputs["examples"]]
        )

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return the mean loss of a token, in nats."""
        batch: Minibatch = outcome.outputs["examples"]
        update: UpdateResult = outcome.outputs["optim_step"]
        tokens = sum(datum.sampled for datum in batch.datums)
        metrics = {"loss/mean": update.metrics["loss/sum"] / tokens, **update.metrics}
        metrics["examples/tokens"] = float(tokens)
        return StepReport(metrics, [], [], {}, outcome.outputs["checkpoint"])
