"""The assumptions behind an estimate, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlc.catalog import (
    env_facts,
    find_model,
    find_provider,
    loss_traits,
    max_turns,
    model_price,
    reward_models_of,
    rubrics_of,
    teacher_traits,
    tokenizer_of,
    unknown_turns,
)
from rlc.plan import (
    FORM_TRIES,
    EndpointPlan,
    EnvPlan,
    Evaluation,
    FromData,
    Likelihood,
    Pairs,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    Samples,
    StagePlan,
    Table,
    Training,
    is_training,
    show,
)
from rlc.pricing import cost, shapes, tokens
from rlc.pricing.asked import endpoint_dollars
from rlc.pricing.measured import Seen, measured_sentences, measured_stages
from rlc.pricing.shapes import Level
from rlc.records import values_of


def assumptions(stage: StagePlan, seen: Seen | None = None) -> list[str]:
    """Return everything that the estimates of a stage assume, or what was ``seen`` instead."""
    if seen and measured_stages(stage, seen) is not None:
        known = measured_sentences(stage, seen)
        return [*known, *_judges(stage), *_prices(stage), *_storage(stage)]
    envs = [
        f"{env.name}: {sentence}"
        for env in stage.environments
        for sentence in _environment(env, stage)
    ]
    return [*_sampling(stage), *envs, *_judges(stage), *_prices(stage), *_storage(stage)]


def _judges(stage: StagePlan) -> Iterator[str]:
    """Yield what judges are asked, and which of them have no known price."""
    found = list[str]()
    for env in stage.environments:
        for _, _, learnt in reward_models_of(env):
            found.append(f"{learnt.name} is billed as two prefills of each episode")
        for _, judging, judge in rubrics_of(env):
            times = {
                "score": "once for each episode",
                "ranking": "once for each group",
                "pairwise": "n (n − 1) times for each group of n",
            }[judging.by]
            found.append(
                f"low, expected, high: {judge.name} is asked {times}, at most {judge.attempts} "
                f"times each, and answers {_shares(shapes.REPLY_SHARE)} of its max_tokens"
            )
            asked = judge.model
            if isinstance(asked, EndpointPlan) and endpoint_dollars(asked, 0, 0) is None:
                found.append(
                    f"the price of {asked.model} at {asked.url} is unknown: the sums are lower "
                    "bounds (`prompt_price` and `reply_price` say it)"
                )
    yield from dict.fromkeys(found)


def _sampling(stage: StagePlan) -> Iterator[str]:
    envs = stage.environments
    if envs and not any(data.by_oracle for data in stage.data):
        yield f"low, expected, high: replies of {_shares(shapes.REPLY_SHARE)} of max_tokens"
        if (tries := tokens.most_tries(stage, "high")) > 1:
            played = f"rollouts are played and judged {tries} times"
            yield f"high: {played}, as if all tries but the last failed"
    if any(max_turns(env) not in (None, 1) for env in envs):
        yield f"low, expected, high: episodes of {_shares(shapes.TURN_SHARE)} of the turns allowed"
    yield from _BY_KIND[stage](stage)


def _likelihood(stage: Training) -> Iterator[str]:
    data = stage.of(FromData).data
    yield from _heldout(stage)
    if data.read is not None:
        if (rows := shapes.example_tokens(data, stage.model)) is not None:
            yield f"examples of {rows.expected:.0f} tokens on average ({_rows(rows)})"
        else:
            least, usual, most = tokens.ROW_TOKENS.values()
            yield f"low, expected, high: examples of {least}, {usual}, {most:,} tokens, assumed"
    elif data.by_oracle:
        yield (
            "low, expected, high: replies of the oracle, which cost nothing, of "
            f"{_shares(shapes.ORACLE_SHARE)} of max_tokens"
        )
    elif isinstance(data, Samples):
        tries = ", ".join(f"{tokens.played_for_one(data, level):g}" for level in shapes.LEVELS)
        yield f"low, expected, high: {tries} episodes played for each that is kept, assumed"
    else:
        tries = ", ".join(str(number) for number in tokens.TRIES.values())
        yield f"low, expected, high: {tries} episodes played for each that is good enough"


def _heldout(stage: Training) -> Iterator[str]:
    if tokens.heldout_count(stage) is None:
        yield f"{tokens.HELDOUT:,} held-out examples, assumed"


def _policy_gradient(stage: Training) -> Iterator[str]:
    batch = stage.of(Rollouts).batch
    yield _CACHED
    yield f"low, expected, high: {_shares(tokens.TAUGHT)} of the rollouts trained on"
    if batch.kind == "turns":
        yield (
            f"high: {batch.most_lost:,} replies a step are lost with rollouts that fail, after "
            "which no more are played in their place"
        )
    if batch.resample:
        again = f"{batch.resample:,} replacements"
        yield f"low, expected, high: {_shares(tokens.RESAMPLED)} of the {again} played"
    yield from _heldout(stage)


def _preferences(stage: Training) -> Iterator[str]:
    data = stage.of(FromData).data
    rows = shapes.preference_tokens(data, stage.model)
    what = "pairs" if data.word == Pairs.word else "replies"
    if rows is not None:
        yield f"{what} of {rows.expected:.0f} tokens on average, prompts included ({_rows(rows)})"
    elif data.read is not None:
        least, usual, most = tokens.SIDE_TOKENS.values()
        yield f"low, expected, high: replies of {least}, {usual}, {most:,} tokens, assumed"
    yield "a forward pass before each gradient is billed as a prefill of every reply"
    if stage.of(PreferenceLoss).reference is not None:
        yield "the reference is billed as a prefill of every reply, once in the whole stage"
    if tokens.heldout_count(stage) is None:
        yield f"{tokens.HELDOUT:,} held-out preferences, assumed"


_CACHED = "low and expected: prompts shared by a group or kept from earlier turns are cached"
_BY_KIND: Table[Callable[[Any], Iterator[str]]] = Table(
    {
        PolicyGradient: _policy_gradient,
        Likelihood: _likelihood,
        PreferenceLoss: _preferences,
        Evaluation: lambda _: iter([_CACHED]),
    }
)


def _environment(env: EnvPlan, stage: StagePlan) -> Iterator[str]:
    facts = env_facts(env)
    counted = facts.tokens.get(tokenizer_of(stage.model.base) or "", {})
    how = {kind: f"{mean:,} characters" for kind, (mean, _) in facts.chars.items()}
    how |= dict.fromkeys(counted, "counted")
    sampling = stage.sampling
    usual = shapes.rollout_shape(env, stage.model, sampling, "expected")[0]
    first, *others = shapes.rollout_shape(env, stage.model, sampling, "high")
    if (rows := shapes.tokens_of_rows(env, stage.model)) is not None:
        how["prompt"] = _rows(rows)
    assumed = "not measured, assumed"
    yield f"a first prompt of about {usual.prompt:g} tokens ({how.get('prompt', assumed)})"
    if shapes.tokenizer_at_hand(stage.model.base) is None:
        characters = ", ".join(f"{number:g}" for number in shapes.CHARACTERS_PER_TOKEN.values())
        yield f"low, expected, high: {characters} characters a token"
    if others:
        judge = others[0].prompt
        yield f"the judge's prompt holds the solutions: up to {judge:,.0f} tokens"
    if env.agent is not None:
        yield "texts that its agent adds, and a history that it rewrites, are not counted"
        yield "high: each prompt fills the context, or has `max_prompt_tokens` of the sampling"
        yield f"high: each reply is sampled {FORM_TRIES} times, as if the last alone had its form"
    if max_turns(env) == 1:
        return
    if max_turns(env) is None:
        turns = f"{shapes.UNKNOWN_TURNS['low']}, {shapes.UNKNOWN_TURNS['expected']}"
        yield f"low, expected, high: {turns}, any number of turns ({unknown_turns(env)})"
    seen = how.get("observation", assumed)
    yield f"later observations of about {usual.observation:g} tokens ({seen})"
    allowed = shapes.turns_allowed(env, "high")
    if env.agent is None and first.growing < allowed and not first.endless:
        yield (
            f"replies at max_tokens leave room for {first.growing:,} of its {allowed:,} turns; "
            "high also covers more turns with shorter replies"
        )


def _prices(stage: StagePlan) -> Iterator[str]:
    model = stage.model
    if cost.is_free(model):
        return
    price = model_price(model)
    if price is None:
        yield f"the prices of {model.base} are unknown: the sums are lower bounds"
    prices = values_of(price) if price is not None else {}
    for kind, value in prices.items():
        if value is None:
            yield f"the {kind} price of {model.base} is unknown: the sums are lower bounds"
    known = find_model(model.base)
    own = () if known is None or model.price is not None else known.unconfirmed
    unsure = [name for name in own if name in prices]
    if unsure:
        yield f"no primary source confirms the price of {', '.join(unsure)} of {model.base}"
    if stage.policy_gradient is not None:
        yield from _objective(stage.policy_gradient)


def _objective(objective: PolicyGradient) -> Iterator[str]:
    loss, traits = objective.loss, loss_traits(objective.loss)
    if traits.reaches_prompt or traits.forward:
        yield f"the forward pass of {loss.name}() is billed as a prefill of every sequence"
    if loss.program is not None:
        yield (
            f"low and expected: the service computes {loss.name}() itself; high: it has no "
            "custom losses, and the SDK computes it after a forward pass, which is billed as a "
            "prefill of every sequence"
        )
    if objective.kl is not None:
        if cost.reference_price(objective.kl) is None:
            base = objective.kl.reference.model.base
            yield f"the price of {base} is unknown: the sums are lower bounds"
        else:
            yield "the reference is billed as a prefill of every sequence, uncached"
    if objective.observations is not None:
        yield (
            "expected, high: what comes between replies is learnt by a gradient of its own, of "
            "every sequence; low: every episode is one reply"
        )
    if objective.teacher:
        yield "a teacher is billed as a prefill of every sequence that it scores, uncached"
        if any(teacher_traits(teacher.kind).targets for teacher in objective.teacher):
            yield "its most likely tokens are learnt by a gradient of their own, of every sequence"


def _storage(stage: StagePlan) -> Iterator[str]:
    if not is_training(stage) or cost.is_free(stage.model):
        return
    size, price = cost.checkpoint_bytes(stage.model, "high"), stage.model.price
    there = find_provider(stage.model.service)
    kept = cost.kept_checkpoints(stage.save, stage.steps)
    ttl = stage.save.ttl_seconds
    time = "a month, and on until they are deleted" if ttl is None else show(ttl, "duration")
    if price is not None and price.checkpoint is not None:
        many = f"{kept:,} checkpoint{'s' * (kept != 1)}"
        yield f"{many} kept for {time}, at ${price.checkpoint:g} a month each"
        return
    if there is None or there.storage is None:
        yield f"the price of checkpoints on `{stage.model.service}` is unknown"
        return
    if size is None:
        yield "the size of the adapter is unknown, and with it the price of its checkpoints"
        return
    low, high = cost.BYTES_PER_PARAMETER["low"], cost.BYTES_PER_PARAMETER["high"]
    yield (
        f"{kept:,} checkpoint{'s' * (kept != 1)} of {size / cost.GIGABYTE:.2g} GB kept for {time}, "
        f"at ${there.storage:.2f} a GB and month ({cost.lora_parameters(stage.model):,} "
        f"parameters with Adam's moments, {low} to {high} bytes each)"
    )


def _rows(rows: shapes.RowTokens) -> str:
    measured = "counted" if rows.counted else "by their characters"
    read = (
        f"the first {rows.rows:,} rows" if rows.rows == shapes.FIRST_ROWS else f"{rows.rows:,} rows"
    )
    return f"{measured}, {read} of the file"


def _shares(part: Mapping[Level, float]) -> str:
    return ", ".join(f"{share:.3g}%" for share in (100 * share for share in part.values()))
