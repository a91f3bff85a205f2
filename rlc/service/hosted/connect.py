"""Finds the service of a plan, and checks it before anything is written or paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.catalog import find_retired, find_weights, is_run_weights, provider
from rlc.catalog.packages import described, lacking
from rlc.catalog.requirements import service_packages
from rlc.plan import LOCAL, ModelPlan, ModelState, Plan, StagePlan, is_hosted
from rlc.plan.leaves import asked_models, models_of
from rlc.service.hosted.endpoint import Endpoint, find_endpoint
from rlc.service.interface import RemoteService, ServiceClient, ServiceError

if TYPE_CHECKING:
    from tinker.types import SupportedModel

_NAMES_SHOWN = 5


def smaller_contexts(plan: Plan, models: Sequence[SupportedModel], where: str) -> dict[str, int]:
    """Return the contexts, in tokens by base model, that are smaller on this server than in the
    plan, or unknown there: prompts have to stay below them. Raise ServiceError if the server lacks
    a model, or a use of it, or its context cannot hold a single reply."""
    offered = {model.model_name: model for model in models if model.model_name}
    for stage in plan.stages:
        for base, trained, sampled, least in _needs(stage):
            if base not in offered:
                raise _unknown(base, list(offered), where)
            model = offered[base]
            for wanted, can, use in (
                (trained, model.trainable, "train"),
                (sampled, model.sampleable, "sample"),
            ):
                if wanted and can is False:  # None, not reported, counts as possible
                    raise ServiceError(f"{where} does not {use} `{base}` (stage `{stage.name}`)")
            context = model.max_context_length
            if context is not None and context < least:
                raise ServiceError(
                    f"{where} has {context:,} tokens of context for `{base}`; a reply of stage "
                    f"`{stage.name}` needs at least {least:,} with its prompt",
                    "lower max_tokens",
                )
    found = {}
    for planned in (stage.model for stage in plan.stages):
        context = offered[planned.base].max_context_length
        if context is not None and (planned.context is None or context < planned.context):
            found[planned.base] = context
    return found


def _needs(stage: StagePlan) -> Iterator[tuple[str, bool, bool, int]]:
    """Iterate over the base models of a stage: whether they are trained and sampled, and the least
    context, for one reply to the longest prompt that the plan is sure to allow."""
    for _, state in asked_models(stage):
        yield state.model.base, False, True, 2
    if stage.sampling is None:
        yield stage.model.base, True, any(data.from_policy for data in stage.data), 2
        return
    replies = [stage.sampling.max_tokens or 1, *(env.rollouts.max_tokens for env in stage.played)]
    context = max(replies) + (stage.sampling.max_prompt_tokens or 1)
    yield stage.model.base, stage.trains, True, context


def _unknown(base: str, offered: Sequence[str], where: str) -> ServiceError:
    if (retired := find_retired(base)) is not None:
        return ServiceError(
            f"{where} no longer has `{base}` (retired {retired.since})",
            f"the nearest that it has is `{retired.use}`",
        )
    if near := get_close_matches(base, offered, 1):
        hint = f"did you mean `{near[0]}`?"
    else:
        more = len(offered) - _NAMES_SHOWN
        shown = ", ".join(f"`{name}`" for name in offered[:_NAMES_SHOWN]) or "none at all"
        hint = f"it has {shown}" + (f" and {more} more" if more > 0 else "")
    return ServiceError(f"{where} has no model `{base}`", hint)


def require_service(plan: Plan, base_url: str | None = None) -> None:
    """Check that the service of a plan can be used from here. ``base_url`` is the address of a
    server in place of the hosted service. Raise ServiceError if a package is missing, the key is
    not accepted, or a server cannot be reached or lacks a model."""
    name = _name(plan)
    if is_hosted(name):
        endpoint = _endpoint(name, base_url)
        if endpoint.provider.module is None:
            from rlc.service.hosted.service import offered_models

            smaller_contexts(plan, offered_models(endpoint), endpoint.name)
        else:
            from rlc.service.hosted.stand_in import load

            load(endpoint.provider)
    elif base_url is not None:
        raise ServiceError(
            "--base-url is the address of a Tinker server; this plan runs on the embedded engine",
            "`--service tinker` trains its model there",
        )
    else:
        require_packages(LOCAL)


def require_states(plan: Plan, base_url: str | None = None) -> None:
    """Check that the states that the models of a plan start from are on its service, and are of
    these models. Raise ServiceError if one is not there, or is of another model or rank."""
    name = _name(plan)
    if not is_hosted(name) or (endpoint := _endpoint(name, base_url)).provider.module is not None:
        return
    from rlc.service.hosted.service import state_info

    states = dict[str, ModelPlan]()
    for stage in plan.stages:
        own = ModelState(stage.model, stage.after)
        for state in (own, *(asked for _, asked in asked_models(stage))):
            if state.after is None and state.model.weights is not None:
                states[state.model.weights] = state.model
    for weights, model in states.items():
        place = find_weights(weights).place if is_run_weights(weights) else weights
        if "/sampler_weights/" in place:
            continue
        info = state_info(place, endpoint)
        offered = endpoint.provider.offered(model.base)
        base = model.base if offered is None else offered.name
        if info.base_model != base:
            raise ServiceError(
                f"the weights of `{model.name}` are of `{info.base_model}`, and it is `{base}`",
                "a state fits the model that it was trained on",
            )
        for part in ("lora_rank", "train_mlp", "train_attn", "train_unembed"):
            theirs, own_part = getattr(info, part), getattr(model, part)
            if theirs is not None and theirs != own_part:
                said, ours = str(theirs).lower(), str(own_part).lower()
                raise ServiceError(
                    f"`{model.name}` has `{part} = {ours}`, and its weights have {said}",
                    f"a state keeps what it has: write `{part} = {said}`",
                )


def connect_service(
    plan: Plan,
    checkpoints: Path,
    base_url: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ServiceClient:
    """Return a client of the plan's service, which makes no request yet. The embedded engine saves
    under ``checkpoints``; a hosted service stores ``metadata`` with its session, models and
    checkpoints. Raise ServiceError if there is no key or a package is missing."""
    if not is_hosted(_name(plan)):
        require_service(plan, base_url)
    return open_service(_name(plan), checkpoints, base_url, metadata)


def open_service(
    name: str,
    checkpoints: Path,
    base_url: str | None = None,
    metadata: Mapping[str, str] | None = None,
    shared: bool = False,
) -> ServiceClient:
    """Return a client of a named service; see `open_engine` for ``shared`` (continuous)."""
    if not is_hosted(name):
        require_packages(LOCAL)
        from rlc.service.engine import open_engine

        return open_engine(checkpoints, continuous=shared)
    endpoint = _endpoint(name, base_url)
    from rlc.service.hosted.service import HostedService
    from rlc.service.hosted.stand_in import StandInService

    kind = HostedService if endpoint.provider.module is None else StandInService
    hosted: RemoteService = kind(endpoint, dict(metadata or {}))
    return hosted


def _endpoint(name: str, base_url: str | None) -> Endpoint:
    """Return the endpoint of a hosted service. Raise ServiceError if it cannot be used from here,
    and ProviderError if there is none of that name."""
    if (refusal := provider(name).refusal) is not None:
        raise ServiceError(refusal)
    require_packages(name)
    return find_endpoint(base_url, service=name)


def _name(plan: Plan) -> str:
    """Return the one service of all stages, and of their auxiliary models."""
    names = {model.service for stage in plan.stages for _, model in models_of(stage)}
    if len(names) > 1:
        raise ServiceError(f"one job runs on one service, not on {' and '.join(sorted(names))}")
    return names.pop()


def require_packages(service: str) -> None:
    """Raise ServiceError if a service needs packages that are not installed."""
    packages = {name: extra for name, extra in service_packages(service).items() if extra}
    missing = {one: described(one, wrong) for one in packages if (wrong := lacking(one))}
    if missing:
        there, extra = provider(service), packages[next(iter(missing))]
        what = f"the {there.title} service" if there.hosted else there.title
        needs = ", ".join(missing.values())
        raise ServiceError(f"{what} needs {needs}: pip install 'rlc[{extra},gem]'")
