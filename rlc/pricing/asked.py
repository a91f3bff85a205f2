"""Tokens of the models that a stage asks and does not train, each at its own price."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen

from rlc.plan.environments import EndpointPlan
from rlc.plan.models import ModelPlan
from rlc.plan.records import PreferencePlan, SftPlan, StagePlan
from rlc.pricing.distillation import samples_tokens, teacher_tokens
from rlc.pricing.judges import judge_tokens
from rlc.pricing.opponents import opponent_tokens
from rlc.pricing.preferences import compared, reference_tokens
from rlc.pricing.shapes import rollout_shapes
from rlc.pricing.texts import Level
from rlc.pricing.tokens import TRIES, Tokens, heldout_tokens, largest, sampling_tokens

ASKED = ("teacher", "judge", "opponent", "samples")  # lines of a bill


@frozen
class AskedTokens:
    """What a model is asked for in one step of a stage, or in one evaluation, and before the first.
    ``kind`` is one of :data:`ASKED`."""

    kind: str
    model: ModelPlan | EndpointPlan
    step: Tokens
    before: Tokens = field(factory=Tokens)

    def total(self, times: int) -> Tokens:
        """The tokens of so many steps, and of what comes before them."""
        return self.step * times + self.before


def asked_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """The tokens of each model that a stage asks."""
    for teacher, read in teacher_tokens(stage, level):
        yield AskedTokens("teacher", teacher.model.model, read)
    for judge, step, before in judge_tokens(stage, level):
        yield AskedTokens("judge", judge, step, before)
    for model, played in samples_tokens(stage, level):
        yield AskedTokens("samples", model, Tokens(), played)
    for model, sampled in opponent_tokens(stage, level):
        yield AskedTokens("opponent", model, sampled)
    yield from _by_preferences(stage, level)
    if isinstance(stage, SftPlan | PreferencePlan) and stage.heldout is not None:
        each = heldout_tokens(stage, level) * compared(stage) / stage.steps
        yield AskedTokens("evaluation", stage.model, Tokens(prefill=each))


def _by_preferences(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """What a loss compares with, and what makes the pairs."""
    if not isinstance(stage, PreferencePlan):
        return
    if stage.reference is not None:
        before = Tokens(prefill=reference_tokens(stage, level))
        yield AskedTokens("reference", stage.reference.model, Tokens(), before)
    for data in (stage.data, stage.heldout):
        if data is not None and data.env is not None and data.model is not None:
            shapes = rollout_shapes(data.env, data.model.model, None, level)
            tasks = (data.count or 0) * TRIES[level]
            made = (sampling_tokens(s, tasks, data.samples or 1, level != "high") for s in shapes)
            yield AskedTokens("samples", data.model.model, Tokens(), largest(made))
