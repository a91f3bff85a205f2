"""A supervised stage: a function for each kind of node in its step graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING

import numpy as np
from attrs import define

from rlc.plan import FromData, Training
from rlc.runtime.graph import Inputs, NodeContext, Parts, StepFunction, StepOutcome
from rlc.runtime.records import TrainedSample
from rlc.runtime.stages.base import Setup, Stage, StepReport
from rlc.runtime.stages.examples import Example, heldout_node, load_examples, sampled_examples
from rlc.runtime.updates import optimizer
from rlc.runtime.updates.datums import Minibatch
from rlc.runtime.updates.optimizer import PendingGradient, PendingGradients, UpdateResult
from rlc.runtime.updates.scorers import LogprobScorers, teacher_mass

if TYPE_CHECKING:
    pass

_SHOWN = 400  # tokens of a prompt and of a reply, as a sample


@define(eq=False)
class SftStage(Stage[LogprobScorers]):
    """A supervised stage in progress; ``heldout`` scores examples that it does not learn from."""

    plan: Training
    batch: int
    examples: list[Example]
    heldout: Mapping[str, StepFunction]

    def functions(self) -> dict[str, StepFunction]:
        return {
            "examples": self.next_examples,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "checkpoint": self.weights.checkpoint,
            **self.heldout,
        }

    async def next_examples(self, node: NodeContext, inputs: Inputs) -> Minibatch:
        count, name = len(self.examples), self.plan.name
        numbers = sampled_examples(self.seed, name, count, self.batch, node.step)
        datums = [datum for number in numbers for datum in self.examples[number]]
        taught = [datum for datum in datums if datum.topk is not None]
        return Minibatch([datum for datum in datums if datum.topk is None], {}, taught)

    async def forward_backward(self, node: NodeContext, inputs: Inputs) -> PendingGradients:
        """Submit the gradient without waiting, so that the optimiser step follows at once."""
        return await optimizer.submit(
            self.weights.training, self.plan, node.step, [inputs["examples"]]
        )

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return the mean loss of a token, in nats, and the metrics of top-k tokens."""
        batch: Minibatch = outcome.outputs["examples"]
        update: UpdateResult = outcome.outputs["optim_step"]
        datums = (*batch.datums, *batch.taught)
        weighed = fsum(datum.weighed for datum in datums)
        metrics = {"loss/mean": update.metrics["loss/sum"] / weighed, **update.metrics}
        metrics["examples/tokens"] = float(sum(datum.sampled for datum in datums))
        metrics |= teacher_mass(batch.taught) | outcome.outputs.get("heldout", {})
        (gradients,) = Parts.of(outcome.outputs["forward_backward"])
        lesson = self._lesson(gradients.submitted[0])
        return StepReport(metrics, outcome.outputs["checkpoint"], lesson=lesson)

    def _lesson(self, gradient: PendingGradient) -> TrainedSample | None:
        """Return the likelihood of the first sequence of a step, with the ends of its last reply
        and of the tokens before it; None if none of its tokens is learnt."""
        datum = gradient.datums[0]
        (learnt,) = np.nonzero(datum.mask_T)
        if not len(learnt):
            return None
        logprobs_T = gradient.output.result().loss_fn_outputs[0]["logprobs"].to_numpy()
        if gradient.taught:
            logprobs_T = logprobs_T[:, -1]  # of the sampled token
        begin = end = int(learnt[-1]) + 1
        while begin > 1 and datum.mask_T[begin - 2]:
            begin -= 1
        tokens = [*datum.inputs[:1], *datum.targets_T.tolist()]  # target t is token t + 1
        decode = self.weights.training.get_tokenizer().decode
        return TrainedSample(
            place="an example of the last step",
            measured=f"loss {-float(logprobs_T[learnt].mean()):.3f}",
            prompt=decode(tokens[max(0, begin - _SHOWN) : begin]),
            replies=(("reply", decode(tokens[max(begin, end + 1 - _SHOWN) : end + 1])),),
        )


async def open_likelihood(setup: Setup, stage: Training) -> SftStage:
    """Open a stage with its examples. Raise DataError or RunError as :func:`load_examples` does."""
    setup.observer.waiting(f"reading the data of {stage.name}")
    source = stage.of(FromData)
    examples = await load_examples(setup, stage, source.data)
    heldout = await heldout_node(setup, stage)
    return SftStage(
        setup.seed, setup.weights, setup.meter, {}, stage, source.batch, examples, heldout
    )
