"""Prices from episodes that were played: by a probe, or by earlier runs of the same.

What was seen decides the means of an episode. Around them stands an interval that is meant to hold
in nine of ten runs: of the error of a mean over few groups, and of how lengths and the share of
groups with differing rewards drift while a model is trained. The drift is assumed, unless earlier
runs have shown it. Independent errors add up in quadrature, as logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log, sqrt
from statistics import fmean

from rlc.catalog import loss_traits, max_turns
from rlc.plan import EnvPlan, Plan, StagePlan, compares_in_groups
from rlc.plan.leaves import evolved
from rlc.pricing.critical_path import Latencies, declared_latencies
from rlc.pricing.shapes import LEVELS, Level, MeasuredEnv, MeasuredShape
from rlc.records import frozen, values_of

SURE = 1.645  # standard errors on each side of the mean: 90 % of a normal distribution
LEAST_SIGNAL = 0.02  # the share of groups that teach, where none of those seen did


@frozen
class DriftRange:
    """By what factor the mean over a whole stage differs from what was seen of its start: likely
    not less than ``low``, nor more than ``high``. ``source`` says from where that is known."""

    low: float
    expected: float
    high: float
    source: str


LENGTH_DRIFT = DriftRange(0.68, 1.0, 1.4, "assumed")
SIGNAL_DRIFT = DriftRange(0.6, 0.9, 1.2, "assumed")


@frozen
class MeasuredEpisodes:
    """What was seen of the episodes of one environment.

    ``prompt`` are the tokens of the first prompt, ``prompts``, ``replies`` and ``datums`` those of
    all prompts, replies and training sequences of a rollout, ``sequences`` and ``turns`` their
    numbers, all of them means; ``cached`` is the share of ``prompts`` that the service had in its
    cache. ``error`` is the relative standard error of the tokens of a group. ``signal`` is the
    share of groups whose members had different rewards; ``again`` the rollouts that were played
    again, or failed, for each that was not; ``asked`` the tokens that judges and opponents took for
    each; None if that is not known. Groups ``at_once`` took ``rollout_seconds`` to play,
    and a token ``train_seconds`` to be trained on; 0 if that is not known.
    """

    source: str
    groups: int
    episodes: int
    prompt: float
    prompts: float
    replies: float
    datums: float
    sequences: float
    turns: float
    cached: float
    error: float
    signal: float
    again: float = 0.0
    asked: float | None = None
    at_once: float = 0.0
    rollout_seconds: float = 0.0
    train_seconds: float = 0.0
    length_drift: DriftRange = LENGTH_DRIFT
    signal_drift: DriftRange = SIGNAL_DRIFT

    def to_dict(self) -> dict[str, object]:
        """Return its values as data for JSON."""
        drifts = ("length_drift", "signal_drift")
        return values_of(self) | {name: values_of(getattr(self, name)) for name in drifts}


Seen = Mapping[str, MeasuredEpisodes]  # by the names of a stage's environments


def measured_stages(stage: StagePlan, seen: Seen) -> dict[Level, StagePlan] | None:
    """Return a stage by level with what was seen in place of what is assumed of its environments,
    each to be priced as expected; None unless all of them were seen."""
    envs = stage.played
    if not envs or any(env.name not in seen for env in envs):
        return None
    return {
        level: evolved(
            stage, {"envs": tuple(_measured(stage, env, seen[env.name], level) for env in envs)}
        )
        for level in LEVELS
    }


def _measured(stage: StagePlan, env: EnvPlan, seen: MeasuredEpisodes, level: Level) -> MeasuredEnv:
    longer, taught = _factors(seen, level, needs_signal(stage))
    longer = min(longer, max(1.0, _longest(env) / max(seen.replies, 1.0)))
    failed = 1 + seen.again
    first = min(seen.prompt, seen.datums)  # a prompt does not grow
    shape = MeasuredShape(
        prompt=seen.prompt,
        observation=0,
        turns=max(1, round(seen.turns)),
        reply=max(1, round(longer * seen.replies / max(seen.turns, 1.0))),
        history="all",
        shared=False,
        all_prompts=(seen.prompt + longer * max(seen.prompts - seen.prompt, 0.0)) * failed,
        all_replies=longer * seen.replies * failed,
        all_datums=first + longer * (seen.datums - first),
        mean_sequences=seen.sequences,
        mean_turns=seen.turns,
        cached=seen.cached,
    )
    values = values_of(env)
    asked = None if seen.asked is None else longer * seen.asked
    return MeasuredEnv(**values, shape=shape, taught=taught, equal=1 - seen.signal, asked=asked)


def _longest(env: EnvPlan) -> float:
    """Return the most tokens that the replies of an episode can have."""
    turns = max_turns(env)
    return env.rollouts.max_tokens * (env.rollouts.max_turns if turns is None else turns)


def _factors(seen: MeasuredEpisodes, level: Level, needs_signal: bool) -> tuple[float, float]:
    """Return by what factor episodes are longer than those that were seen, and the share of groups
    that are trained on. Where both matter, each moves by its part of what both do together."""
    signal = max(seen.signal, LEAST_SIGNAL)
    spread = sqrt(max(signal * (1 - signal), 1 / (seen.groups + 1)) / max(seen.groups, 1))
    usual = seen.length_drift.expected, seen.signal_drift.expected
    if level == "expected":
        return usual[0], min(1.0, usual[1] * signal) if needs_signal else 1.0
    ends = getattr(seen.length_drift, level), getattr(seen.signal_drift, level)
    errors = seen.error, spread / signal
    wide = [
        sqrt(log(end / at) ** 2 + (SURE * error) ** 2)
        for end, at, error in zip(ends, usual, errors, strict=True)
    ]
    if not needs_signal:
        wide[1] = 0.0
    together = sqrt(sum(one**2 for one in wide)) or 1.0
    sign = -1 if level == "low" else 1
    longer, more = (exp(sign * one**2 / together) for one in wide)
    return usual[0] * longer, min(1.0, usual[1] * signal * more) if needs_signal else 1.0


def needs_signal(stage: StagePlan) -> bool:
    """Return whether groups with equal rewards are not trained on: nothing but a comparison of
    their members gives a gradient."""
    objective = stage.policy_gradient
    if objective is None:
        return False
    traits = loss_traits(objective.loss)
    pulled = objective.kl is not None and bool(objective.kl.coef)
    others = pulled or bool(objective.teacher) or objective.observations is not None
    weighted = traits.weighted or traits.pull is not None
    return compares_in_groups(objective.advantage) and not (others or weighted)


def seen_latencies(plan: Plan, seen: Mapping[str, Seen], trained: Mapping[str, float]) -> Latencies:
    """Return the seconds of the nodes of stages whose episodes were seen, which train on so many
    tokens a step. A service plays all groups of a step side by side, and takes as long for many as
    for few; this machine shares its processors among them."""
    found: Latencies = {}
    for stage in plan.trainings:
        own = seen.get(stage.name, {})
        envs = [own[env.name] for env in stage.played if env.name in own]
        if stage.rollouts is None or not envs or len(envs) < len(stage.played):
            continue
        if not all(one.rollout_seconds and one.at_once for one in envs):
            continue
        groups = stage.rollouts.batch.at_once
        if stage.model.hosted:
            playing = max(one.rollout_seconds for one in envs)
        else:
            playing = fmean(groups * one.rollout_seconds / one.at_once for one in envs)
        training = trained[stage.name] * max(one.train_seconds for one in envs)
        text = f"rollouts={playing:.3f}s,forward_backward={training:.3f}s"
        found[stage.name] = declared_latencies(plan, [text])[stage.name]
    return found


def measured_sentences(stage: StagePlan, seen: Seen) -> Iterator[str]:
    """Yield what the estimates of a stage are made of, for people."""
    for env in stage.played:
        one = seen.get(env.name)
        if one is None:
            continue
        yield (
            f"{env.name}: {one.source}, {one.episodes:,} episodes in {one.groups:,} groups: "
            f"{one.turns:.3g} turns, {one.replies:,.0f} tokens sampled, {one.prompts:,.0f} in "
            f"prompts, ± {100 * SURE * one.error:.0f}%"
        )
        yield f"{env.name}: lengths change while it trains by {_range(one.length_drift)}"
        if needs_signal(stage):
            yield (
                f"{env.name}: {one.signal:.0%} of the groups differ in reward, which changes by "
                f"{_range(one.signal_drift)}"
            )


def _range(drift: DriftRange) -> str:
    return f"a factor of {drift.low:.2f} to {drift.high:.2f} ({drift.source})"
