"""A plan compared with what a server reports that it can do, before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attrs import frozen

from rlc.catalog import find_retired
from rlc.plan import Plan, StagePlan
from rlc.plan.leaves import asked_models
from rlc.service.interface import ServiceError

if TYPE_CHECKING:
    from tinker.types import SupportedModel

_NAMES_SHOWN = 5


@frozen
class ModelNeed:
    """What a stage needs of a base model. ``least_context``: one reply to the longest prompt that
    the plan is sure to allow."""

    stage: str
    base: str
    trained: bool
    sampled: bool
    least_context: int


def smaller_contexts(plan: Plan, models: Sequence[SupportedModel], where: str) -> dict[str, int]:
    """Check that the server can do what the plan asks.

    Returns:
        The contexts, in tokens by base model, that are smaller on this server than the plan
        counts on: prompts have to stay below them.

    Raises:
        ServiceError: the server lacks a model, or a use of it, or its context cannot hold a single
            reply.
    """
    offered = {model.model_name: model for model in models if model.model_name}
    for need in (need for stage in plan.stages for need in _needs(stage)):
        if need.base not in offered:
            raise _unknown(need.base, list(offered), where)
        _require_use(need, offered[need.base], where)
    found = {}
    for model in (stage.model for stage in plan.stages):
        context = offered[model.base].max_context_length
        if context is not None and context < (model.context or context):
            found[model.base] = context
    return found


def _needs(stage: StagePlan) -> Iterator[ModelNeed]:
    for _, state in asked_models(stage):
        yield ModelNeed(stage.name, state.model.base, trained=False, sampled=True, least_context=2)
    if stage.sampling is None:
        sampled = any(data.from_policy for data in stage.data)
        yield ModelNeed(
            stage.name, stage.model.base, trained=True, sampled=sampled, least_context=2
        )
        return
    replies = [stage.sampling.max_tokens or 1, *(env.rollouts.max_tokens for env in stage.played)]
    context = max(replies) + (stage.sampling.max_prompt_tokens or 1)
    yield ModelNeed(stage.name, stage.model.base, stage.trains, sampled=True, least_context=context)


def _unknown(base: str, offered: Sequence[str], where: str) -> ServiceError:
    if (retired := find_retired(base)) is not None:
        return ServiceError(
            f"{where} no longer has `{base}` (retired {retired.since})",
            f"the nearest that it has is `{retired.use}`",
        )
    shown = ", ".join(f"`{name}`" for name in offered[:_NAMES_SHOWN]) or "none at all"
    more = len(offered) - _NAMES_SHOWN
    near = get_close_matches(base, offered, 1)
    hint = f"it has {shown}" + (f" and {more} more" if more > 0 else "")
    return ServiceError(
        f"{where} has no model `{base}`", f"did you mean `{near[0]}`?" if near else hint
    )


def _require_use(need: ModelNeed, model: SupportedModel, where: str) -> None:
    """Raise ServiceError for what a server cannot do; None, not reported, counts as possible."""
    for wanted, can, use in (
        (need.trained, model.trainable, "train"),
        (need.sampled, model.sampleable, "sample"),
    ):
        if wanted and can is False:
            raise ServiceError(f"{where} does not {use} `{need.base}` (stage `{need.stage}`)")
    context = model.max_context_length
    if context is not None and context < need.least_context:
        raise ServiceError(
            f"{where} has {context:,} tokens of context for `{need.base}`; a reply of stage "
            f"`{need.stage}` needs at least {need.least_context:,} with its prompt",
            "lower max_tokens",
        )
