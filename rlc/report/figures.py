"""The figures of a run, and the time, tokens and dollars to draw them by instead of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from attrs import evolve, frozen

from rlc.catalog import opponent_name, roles_of
from rlc.plan import (
    OUTCOMES,
    EnvPlan,
    Evaluation,
    Likelihood,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    StagePlan,
    Table,
    Training,
    is_training,
)
from rlc.report.drawing import Figure, figure, series
from rlc.report.run_files import RunFiles, TimeSpan
from rlc.runtime import Record, evaluation_results, watched_so_far

# What a chart of distances spans at least, in nats: the rounding of numbers must not fill it.
_NO_DISTANCE = (0.0, 1e-3)


@frozen
class StageFigures:
    stage: str
    kind: str
    figures: tuple[Figure, ...]


def stage_figures(files: RunFiles) -> list[StageFigures]:
    """Return the figures of each training stage, with those of its evaluations."""
    groups = []
    for stage in files.plan.stages:
        records = files.of_stage(stage.name)
        figures = [*_FIGURES[stage](stage, records)]
        if is_training(stage):
            figures += _every_stage(stage, records)
        by = stage.name if stage.trains else stage.after or ""
        if found := tuple(evolve(f, by=by) for f in figures if f is not None):
            groups.append(StageFigures(stage.name, stage.kind, found))
    return groups


def _likelihood(stage: Training, records: Sequence[Record]) -> Iterator[Figure | None]:
    losses = [series("loss", records, "loss/mean"), series("held out", records, "heldout/loss")]
    yield figure(f"{stage.name}-loss", "Loss", losses)


def _evaluation(stage: Evaluation, records: Sequence[Record]) -> Iterator[Figure | None]:
    names = dict.fromkeys(n for r in records for n in evaluation_results(r, stage.name))
    curves = [series(name, records, f"eval/{stage.name}/{name}") for name in names]
    note = f"{stage.tasks:,} tasks, {stage.samples:,} samples each"
    x_name = f"step of {stage.after}" if stage.after else "step"
    title = f"Evaluation {stage.name}"
    yield figure(f"{stage.name}-eval", title, curves, note=note, bounds=(0, 1), x_name=x_name)
    yield from _matches(stage, stage.envs, records)


def _training(stage: Training, records: Sequence[Record]) -> Iterator[Figure | None]:
    name, rollouts, note = stage.name, stage.of(Rollouts), "nats per sampled token"
    about = [one.key for one in watched_so_far(stage, records)]
    envs = [env.name for env in rollouts.envs]
    keys = list(dict.fromkeys(key for record in records for key in record))
    rewards = [series(env, records, f"reward/{env}", f"reward_std/{env}") for env in envs]
    if len(envs) > 1:
        rewards.append(series("all", records, "reward/mean"))
        rewards = [curve and evolve(curve, spread=None) for curve in rewards]
    band = "one standard deviation of the episodes"
    taught = [
        series("over the sampled tokens", records, "teacher/kl"),
        series("over its most likely tokens", records, "teacher/forward_kl"),
    ]
    title = "KL divergence from the teacher"
    yield figure(f"{name}-teacher", title, taught, note=note, bounds=_NO_DISTANCE)
    if "reward/mean" in about:
        yield figure(f"{name}-reward", "Reward", rewards, band=band)
    held_out = [series("held out", records, "heldout/loss")]
    yield figure(f"{name}-heldout", "Loss of held-out examples", held_out)
    parts = [key.split("/") for key in sorted(keys) if key.startswith("reward/")]
    by_role = ["/".join(part[1:]) for part in parts if len(part) == 3 and part[1] in envs]
    roles = [series(role, records, f"reward/{role}") for role in by_role]
    yield figure(f"{name}-roles", "Reward by role", roles)
    yield from _matches(stage, rollouts.envs, records)
    lengths = [series(env, records, f"length/{env}") for env in envs]
    yield figure(f"{name}-length", "Sampled tokens per episode", lengths, bounds=(0, None))
    turns = [series(env, records, f"turns/{env}") for env in envs]
    if any(curve and max(curve.values) > 1 for curve in turns):
        yield figure(f"{name}-turns", "Turns per episode", turns, bounds=(0, None))
    divergences = [
        series("sampler to trainer", records, "kl/sample_train"),
        series("trainer to sampler", records, "kl/train_sample"),
        series("from the reference", records, "kl/reference"),
    ]
    yield figure(f"{name}-kl", "KL divergence", divergences, note=note, bounds=_NO_DISTANCE)
    entropies = [series(env, records, f"entropy/{env}") for env in envs]
    note = "nats per sampled token, at the temperature of sampling"
    yield figure(f"{name}-entropy", "Entropy", entropies, note=note, bounds=(0, None))
    sizes = series("effective sample size", records, "policy/ess")
    shares = [series("clip fraction", records, "policy/clip_fraction"), sizes]
    note = "share of the tokens trained on"
    yield figure(f"{name}-policy", "Off-policy", shares, note=note, bounds=(0, 1))
    yield _groups(stage, records)
    staleness = series("mean", records, "rollouts/staleness")
    if staleness is not None and any(staleness.values):
        most = rollouts.overlap.max_staleness
        note = f"optimiser steps since the weights they were sampled from; at most {most}"
        title = "Staleness of the rollouts"
        yield figure(f"{name}-staleness", title, [staleness], note=note, bounds=(0, most))
    yield _cut_short(stage, records)
    causes = sorted(key for key in keys if key.startswith("failures/"))
    filled = [dict.fromkeys(causes, 0.0) | record for record in records]
    failures = [series(key.removeprefix("failures/"), filled, key) for key in causes]
    yield figure(f"{name}-failures", "Failed rollouts by cause", failures, bounds=(0, None))


def _matches(
    stage: StagePlan, envs: Sequence[EnvPlan], records: Sequence[Record]
) -> Iterator[Figure | None]:
    """Chart how the matches of each game ended, for each seat that the policy has."""
    x_name = f"step of {stage.after}" if not stage.trains and stage.after else "step"
    prefix = "env" if stage.trains else f"eval/{stage.name}/env"
    for env in envs:
        for seat in roles_of(env) if env.play is not None else ():
            ends = [series(end, records, f"{prefix}/{env.name}/{seat}/{end}") for end in OUTCOMES]
            title = f"Matches of {env.name}: {seat} against {opponent_name(env)}"
            note = "share of the matches that ended so"
            id_ = f"{stage.name}-matches-{env.name}-{seat}"
            yield figure(id_, title, ends, note=note, bounds=(0, 1), x_name=x_name)


def _groups(stage: Training, records: Sequence[Record]) -> Figure | None:
    """Chart the groups that teach something, and those that do not."""
    known = [r for r in records if "groups/all_good" in r]
    mixed = [r | {"groups/mixed": 1 - r["groups/constant"]} for r in known]
    curves = [
        series("mixed", mixed, "groups/mixed"),
        series("all solved", records, "groups/all_good"),
        series("all alike, unsolved", records, "groups/all_bad"),
    ]
    note = "share of the groups; only mixed ones teach where members are compared"
    return figure(f"{stage.name}-groups", "Groups", curves, note=note, bounds=(0, 1))


def _cut_short(stage: Training, records: Sequence[Record]) -> Figure | None:
    """Chart what ended before its time, if anything did."""
    shares = []
    for record in records:
        if played := record.get("rollouts/played"):
            counts = (
                record.get(f"rollouts/{kind}", 0) for kind in ("context_overflow", "cut_short")
            )
            over, limited = (count / played for count in counts)
            shares.append(record | {"share/over": over, "share/limited": limited})
    curves = [
        series("replies at max_tokens", records, "turns/cut_off"),
        series("episodes over the context", shares, "share/over"),
        series("episodes over a limit", shares, "share/limited"),
    ]
    shown = [curve for curve in curves if curve is not None and any(curve.values)]
    return figure(f"{stage.name}-limits", "Cut short", shown, note="share", bounds=(0, None))


def _preferences(stage: Training, records: Sequence[Record]) -> Iterator[Figure | None]:
    name = stage.name
    held_out = series("held out", records, "heldout/accuracy")
    accuracies = [series("of the step", records, "accuracy"), held_out]
    note = "share of the better replies that have the higher reward"
    yield figure(f"{name}-accuracy", "Accuracy", accuracies, note=note, bounds=(0, 1))
    held_out = series("held out", records, "heldout/loss")
    losses = [series("of the step", records, "loss/mean"), held_out]
    yield figure(f"{name}-loss", "Loss", losses)
    for key, title, note in (
        ("rewards", "Reward", "beta times the score of a reply"),
        ("logps", "Logprob of a reply", "nats, summed over its tokens"),
    ):
        curves = [series(side, records, f"{key}/{side}") for side in ("chosen", "rejected")]
        yield figure(f"{name}-{key}", title, curves, note=note)
    apart = [series("from the reference", records, "kl/reference")]
    note = "half the mean square of the log ratio of a token"
    yield figure(f"{name}-kl", "Distance", apart, note=note, bounds=_NO_DISTANCE)


def _every_stage(stage: Training, records: Sequence[Record]) -> Iterator[Figure | None]:
    """Chart the optimiser and the service."""
    rate = series("learning rate", records, "optim/lr")
    if rate is not None and min(rate.values) != max(rate.values):
        yield figure(f"{stage.name}-lr", "Learning rate", [rate], bounds=(0, None))
    norm = series("gradient norm", records, "optim/grad_norm")
    yield figure(f"{stage.name}-grad_norm", "Gradient norm", [norm], bounds=(0, None))
    keys = sorted({key for record in records for key in record if key.startswith("service/")})
    curves = [series(key.removeprefix("service/"), records, key) for key in keys]
    yield figure(f"{stage.name}-service", "The service", curves, bounds=(0, None))


_FIGURES: Table[Callable[[Any, Sequence[Record]], Iterator[Figure | None]]] = Table(
    {
        PolicyGradient: _training,
        Likelihood: _likelihood,
        PreferenceLoss: _preferences,
        Evaluation: _evaluation,
    }
)


_MOST = 300  # of the steps whose values a page has; between them lie straight lines

Axes = dict[str, dict[str, list[float]]]  # of a stage: "step", and what it had taken by then


def axes_of(files: RunFiles) -> Axes:
    """Return for each stage that trains its steps, from 0, and what it had taken at their ends:
    the seconds in which it ran, tokens, and dollars where they are known and not nothing."""
    found: Axes = {}
    for stage in files.plan.trainings:
        done = sorted((s for s in files.steps if s.stage == stage.name), key=lambda s: s.step)
        spent = {s.step: s for s in files.spent if s.stage == stage.name}
        if not done:
            continue
        known = [spent.get(span.step) for span in done]
        tokens = [float(sum(one.tokens.values())) if one else 0.0 for one in known]
        dollars = [0.0 if one is None else one.usd for one in known]
        columns = {
            "step": [0.0, *(float(span.step) for span in done)],
            "time": [0.0, *_running(done)],
            "tokens": [0.0, *accumulate(tokens)],
        }
        if any(dollars) and None not in dollars:
            columns["dollars"] = [0.0, *accumulate(usd or 0.0 for usd in dollars)]
        most = len(done)
        kept = sorted({round(i * most / min(most, _MOST)) for i in range(min(most, _MOST) + 1)})
        found[stage.name] = {
            name: [round(values[i], 6) for i in kept] for name, values in columns.items()
        }
    return found


def _running(done: Iterable[TimeSpan]) -> Iterable[float]:
    """Yield the seconds, up to the end of each step, in which a step ran: pauses do not count, and
    what overlaps counts once."""
    covered, reached = 0.0, 0.0
    for span in done:
        covered += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
        yield covered
