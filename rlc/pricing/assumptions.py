"""The assumptions behind an estimate, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import asdict

from rlc.catalog.environments import env_facts, max_turns
from rlc.catalog.facts.models import find_model, storage_price, tokenizer_of
from rlc.catalog.facts.prices import price_of
from rlc.catalog.index import loss_traits, source_traits
from rlc.plan.environments import EnvPlan
from rlc.plan.records import EvalPlan, SftPlan, StagePlan, TrainPlan, environments_of
from rlc.plan.units import show
from rlc.pricing import cost
from rlc.pricing.shapes import (
    CHARACTERS_PER_TOKEN,
    REPLY_SHARE,
    TURN_SHARE,
    UNKNOWN_TURNS,
    rollout_shape,
)
from rlc.pricing.tokens import RESAMPLED, ROW_TOKENS, TRIES


def assumptions(stage: StagePlan) -> list[str]:
    """Everything that the estimates of a stage assume."""
    envs = [
        f"{env.name}: {sentence}"
        for env in environments_of(stage)
        for sentence in _environment(env, stage)
    ]
    return [*_sampling(stage), *envs, *_prices(stage), *_storage(stage)]


def _sampling(stage: StagePlan) -> Iterator[str]:
    envs = environments_of(stage)
    if envs:
        yield f"low, expected, high: replies of {_shares(REPLY_SHARE)} of max_tokens"
    if any(max_turns(env) != 1 for env in envs):
        yield f"low, expected, high: episodes of {_shares(TURN_SHARE)} of the turns allowed"
    if isinstance(stage, SftPlan):
        if stage.data.env is None:
            yield f"prompts and replies of {ROW_TOKENS} tokens each (the file is not read)"
        elif stage.data.policy == "oracle":
            yield "the oracle's replies cost nothing to make and are as long as the model's"
        else:
            tries = ", ".join(str(number) for number in TRIES.values())
            yield f"low, expected, high: {tries} episodes played for each that is good enough"
        return
    yield "low and expected: prompts shared by a group or kept from earlier turns are cached"
    if isinstance(stage, TrainPlan):
        yield "every rollout is trained on; rollouts that fail and are repeated are not counted"
        if stage.batch.resample:
            most = f"{stage.batch.resample:,} replacements"
            yield f"low, expected, high: {_shares(RESAMPLED)} of the {most} played"


def _environment(env: EnvPlan, stage: StagePlan) -> Iterator[str]:
    facts = env_facts(env)
    counted = facts.tokens.get(tokenizer_of(stage.model.base) or "", {})
    how = {kind: f"{number:,} characters" for kind, number in facts.chars.items()}
    how |= dict.fromkeys(counted, "counted")
    sampling = None if isinstance(stage, SftPlan) else stage.sampling
    usual = rollout_shape(env, stage.model, sampling, "expected")[0]
    first, *others = rollout_shape(env, stage.model, sampling, "high")
    said = how.get("prompt", "not measured, assumed")
    yield f"a first prompt of about {usual.prompt:g} tokens ({said})"
    if "counted" not in how.values():
        characters = ", ".join(f"{number:g}" for number in CHARACTERS_PER_TOKEN.values())
        yield f"low, expected, high: {characters} characters a token"
    if others:
        judge = others[0].prompt
        yield f"the judge's prompt holds the solutions: up to {judge:,.0f} tokens"
    if max_turns(env) == 1:
        return
    if env.max_turns is None:
        why = source_traits(env.source).unknown_turns
        yield f"at most {UNKNOWN_TURNS} turns, assumed ({why})"
    said = how.get("observation", "not measured, assumed")
    yield f"later observations of about {usual.observation:g} tokens ({said})"
    allowed = max_turns(env) or UNKNOWN_TURNS
    if first.turns < allowed:
        yield (
            f"replies at max_tokens leave room for {first.turns:,} of its {allowed:,} turns; high "
            "also covers more turns with shorter replies"
        )


def _prices(stage: StagePlan) -> Iterator[str]:
    model = stage.model
    if cost.is_free(model):
        return
    price = price_of(model.base, model.service)
    if price is None:
        yield f"the prices of {model.base} are unknown: the sums are lower bounds"
    prices = asdict(price) if price is not None else {}
    for kind, value in prices.items():
        if value is None:
            yield f"the {kind} price of {model.base} is unknown: the sums are lower bounds"
    known = find_model(model.base)
    unsure = [name for name in (known.unconfirmed if known else ()) if name in prices]
    if unsure:
        yield f"no primary source confirms the price of {', '.join(unsure)} of {model.base}"
    if isinstance(stage, TrainPlan) and loss_traits(stage.loss.name).reaches_prompt:
        yield f"the forward pass of {stage.loss.name}() is billed as a prefill of every sequence"
    if isinstance(stage, TrainPlan) and stage.kl is not None:
        if cost.reference_price(stage.kl, stage.model) is None:
            yield f"the price of {stage.kl.reference} is unknown: the sums are lower bounds"
        else:
            yield "the reference is billed as a prefill of every sequence, uncached"


def _storage(stage: StagePlan) -> Iterator[str]:
    if isinstance(stage, EvalPlan) or cost.is_free(stage.model):
        return
    size = cost.checkpoint_bytes(stage.model, "high")
    if size is None:
        yield "the size of the adapter is unknown, and with it the price of its checkpoints"
        return
    kept = cost.kept_checkpoints(stage.save, stage.steps)
    ttl = stage.save.ttl_seconds
    time = "a month, and on until they are deleted" if ttl is None else show(ttl, "duration")
    low, high = cost.BYTES_PER_PARAMETER["low"], cost.BYTES_PER_PARAMETER["high"]
    yield (
        f"{kept:,} checkpoint{'s' * (kept != 1)} of {size / cost.GIGABYTE:.2g} GB kept for {time}, "
        f"at ${storage_price():.2f} a GB and month ({cost.lora_parameters(stage.model):,} "
        f"parameters with Adam's moments, {low} to {high} bytes each)"
    )


def _shares(part: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%}" for share in part.values())
