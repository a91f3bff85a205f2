"""Stages that learn from data, supervised or by preferences: a function for each kind of node in
their step graphs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
from attrs import define, field

from rlc.algo import sampled_examples
from rlc.catalog import LIKELIHOOD
from rlc.plan import (
    FromData,
    LabelledPreference,
    PairwisePreference,
    PreferenceLoss,
    PreferenceLossPlan,
    Training,
)
from rlc.runtime.concurrency import in_thread
from rlc.runtime.graph import Inputs, NodeContext, Parts, StepFunction, StepOutcome
from rlc.runtime.journal.database import Meter
from rlc.runtime.records import TrainedSample
from rlc.runtime.stages.base import Setup, Stage, StepReport
from rlc.runtime.stages.examples import (
    Example,
    example_records,
    heldout_node,
    load_examples,
)
from rlc.runtime.stages.file_examples import CHOSEN, REJECTED
from rlc.runtime.updates import optimizer
from rlc.runtime.updates.datums import FloatArray, Minibatch
from rlc.runtime.updates.optimizer import PendingGradient, PendingGradients, UpdateResult
from rlc.runtime.updates.preferences import (
    Completion,
    Preference,
    PreferenceLossResult,
    judge,
    labelled,
    pairs,
)
from rlc.runtime.updates.scorers import LogprobScorers, ReferenceReplies, teacher_mass
from rlc.runtime.weights import is_scored

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
        return await optimizer.submit_gradients(
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
        logprobs_T = gradient.outputs()[0]
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


# The functions that make preferences of records, by the objective.
READERS = {PairwisePreference: pairs, LabelledPreference: labelled}
REFERENCE, HELDOUT = "reference", "heldout/"
# The metrics of held-out preferences: the others are about the gradient.
_COMPARED = ("accuracy", "margin", "loss/mean", "rewards/", "logps/")


@define(eq=False)
class PreferenceStage(Stage[ReferenceReplies]):
    """A stage in progress that learns from preferences; ``heldout`` are only compared. ``rows`` has
    the place and the texts of the record of each preference."""

    plan: Training
    batch: int
    loss: PreferenceLossPlan
    preferences: list[Preference]
    heldout: list[Preference]
    rows: Sequence[Mapping[str, Any]]
    _judged: dict[int, PreferenceLossResult] = field(
        factory=dict, init=False
    )  # by step, until it is reported

    @property
    def reference(self) -> ReferenceReplies | None:
        return self.scorers.get(REFERENCE)

    def functions(self) -> dict[str, StepFunction]:
        return {
            "examples": self.next_examples,
            REFERENCE: self.reference_logprobs,
            "forward": self.forward,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "heldout": self.compare_heldout,
            "checkpoint": self.weights.checkpoint,
        }

    def of_step(self, step: int) -> list[Preference]:
        count, name = len(self.preferences), self.plan.name
        numbers = sampled_examples(self.seed, name, count, self.batch, step)
        return [self.preferences[number] for number in numbers]

    async def next_examples(self, node: NodeContext, inputs: Inputs) -> list[Preference]:
        return self.of_step(node.step)

    async def reference_logprobs(self, node: NodeContext, inputs: Inputs) -> list[FloatArray]:
        """Return the reference's logprobs, and request those of the next step."""
        assert self.reference is not None
        found = await self.reference.logprobs(node.step, _sides(inputs["examples"]))
        if node.step < self.plan.steps:
            self.reference.ask(node.step + 1, _sides(self.of_step(node.step + 1)))
        return found

    async def forward(self, node: NodeContext, inputs: Inputs) -> list[list[FloatArray]]:
        """Return the logprobs of the weights, for each datum of each side."""
        return await self._logprobs(node.step, inputs["examples"])

    async def _logprobs(self, step: int, chosen: Sequence[Preference]) -> list[list[FloatArray]]:
        sides = _sides(chosen)
        datums = [datum for side in sides for datum in side.datums]
        wired = await in_thread(lambda: [datum.to_tinker(LIKELIHOOD) for datum in datums])
        output = await self.weights.training.forward(wired, LIKELIHOOD.name)
        self.meter.running[step].prefill += sum(len(datum.inputs) for datum in datums)
        rows = iter(row["logprobs"].to_numpy() for row in output.loss_fn_outputs)
        return [[next(rows) for _ in side.datums] for side in sides]

    async def forward_backward(self, node: NodeContext, inputs: Inputs) -> PendingGradients:
        """Submit the gradient without waiting, so that the optimiser step follows at once."""
        given = inputs["examples"], inputs["forward"], inputs.get(REFERENCE)
        judged = await in_thread(judge, self.loss, *given)
        self._judged[node.step] = judged
        return await optimizer.submit_gradients(
            self.weights.training, self.plan, node.step, [Minibatch(judged.datums, {})]
        )

    async def compare_heldout(self, node: NodeContext, inputs: Inputs) -> dict[str, float]:
        """Compare the held-out preferences, if that is due after the step."""
        if not is_scored(self.plan, node.step):
            return {}
        reference: list[FloatArray] | None = None
        policy = asyncio.ensure_future(self._logprobs(node.step, self.heldout))
        try:
            if self.reference is not None:
                sides = _sides(self.heldout)
                reference = await self.reference.logprobs(node.step, sides)
            found = await in_thread(judge, self.loss, self.heldout, await policy, reference)
        finally:
            policy.cancel()
        return {
            f"{HELDOUT}{name.removesuffix('/mean')}": value
            for name, value in found.metrics.items()
            if name.startswith(_COMPARED)
        }

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return the metrics of the loss and of the optimiser, and the rewards of all replies."""
        judged, outputs = self._judged.pop(step), outcome.outputs
        metrics: dict[str, Any] = {**outputs["optim_step"].metrics, **judged.metrics}
        del metrics["loss/sum"]  # of the linear form that the gradient is taken of
        metrics |= outputs.get("heldout", {})
        pairs = [
            {"stage": self.plan.name, "step": step, "example": one.number, "rewards": rewards}
            | ({} if one.good is None else {"good": one.good})
            for one, rewards in zip(self.of_step(step), judged.rewards, strict=True)
        ]
        lesson = self._lesson(self.of_step(step)[0], judged.rewards[0])
        return StepReport(metrics, outputs["checkpoint"], comparisons=pairs, lesson=lesson)

    def _lesson(self, one: Preference, rewards: Sequence[float]) -> TrainedSample:
        row, sides = self.rows[one.number], [CHOSEN, REJECTED]
        if one.good is None:
            measured = f"margin {rewards[0] - rewards[1]:+.3f}"
        else:
            sides, measured = [CHOSEN if one.good else REJECTED], f"reward {rewards[0]:+.3f}"
        shown = row["shown"]
        replies = tuple((side, shown.get(side, "")) for side in sides)
        return TrainedSample(row["place"], measured, shown.get("prompt", ""), replies)


def _sides(preferences: Sequence[Preference]) -> list[Completion]:
    return [side for preference in preferences for side in preference.sides]


async def open_preferences(setup: Setup, stage: Training) -> PreferenceStage:
    """Open a stage with its preferences and the reference of its loss."""
    setup.observer.waiting(f"reading the data of {stage.name}")
    folder, weights = setup.folder, setup.weights
    objective = stage.of(PreferenceLoss)
    rows, read = (
        [await example_records(setup, stage, one) for one in stage.data],
        READERS[type(objective)],
    )
    learnt, *heldout = [await in_thread(read, records, CHOSEN, REJECTED) for records in rows]
    scorers = dict[str, ReferenceReplies]()
    if (reference := objective.reference) is not None:
        client = await setup.auxiliary.client(reference)
        account = Meter(folder.journal, stage.name, reference.model)
        file = f"reference-{stage.name}.jsonl"
        scorers[REFERENCE] = ReferenceReplies(client, account, folder, file)
    compared = [preference for part in heldout for preference in part]
    texts = [{"place": row["place"], "shown": row.get("shown", {})} for row in rows[0]]
    return PreferenceStage(
        setup.seed,
        weights,
        setup.meter,
        scorers,
        stage,
        stage.of(FromData).batch,
        objective.loss,
        learnt,
        compared,
        texts,
    )
