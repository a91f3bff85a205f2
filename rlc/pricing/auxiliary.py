"""Tokens of the models that a stage asks and does not train, each at its own price."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.plan.environments import EndpointPlan
from rlc.plan.models import ModelPlan
from rlc.plan.stages import StagePlan, is_training
from rlc.pricing.distillation import teacher_tokens
from rlc.pricing.judges import judge_tokens
from rlc.pricing.opponents import opponent_tokens
from rlc.pricing.preferences import compared, reference_tokens
from rlc.pricing.texts import Level
from rlc.pricing.tokens import Tokens, heldout_tokens, played_data
from rlc.records import field, frozen

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
    for model, sampled in opponent_tokens(stage, level):
        yield AskedTokens("opponent", model, sampled)
    if is_training(stage) and stage.preference and (reference := stage.preference.reference):
        before = Tokens(prefill=reference_tokens(stage, level))
        yield AskedTokens("reference", reference.model, Tokens(), before)
    for played in played_data(stage, level):
        if not played.data.from_policy:
            yield AskedTokens("samples", played.model, Tokens(), played.tokens(level))
    if is_training(stage) and stage.heldout is not None:
        each = heldout_tokens(stage, level) * compared(stage) / stage.steps
        yield AskedTokens("evaluation", stage.model, Tokens(prefill=each))
