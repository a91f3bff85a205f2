"""Which charts a run has: a group for each stage, each chart only where something was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from rlc.plan.records import EvalPlan, SftPlan, StagePlan, TrainPlan
from rlc.report.charts import Chart, chart
from rlc.report.files import Record, RunFiles
from rlc.report.series import Series, is_number, series

_OPTIMISER = (("optim/lr", "learning rate"), ("optim/grad_norm", "gradient norm"))


@frozen
class StageCharts:
    stage: str
    kind: str
    charts: tuple[Chart, ...]


def stage_charts(files: RunFiles) -> list[StageCharts]:
    """The charts of each training stage, with those of its evaluations."""
    groups = []
    for stage in files.plan.stages:
        charts = tuple(c for c in _charts(files, stage) if c is not None)
        if charts:
            kind = {TrainPlan: "train", SftPlan: "sft", EvalPlan: "eval"}[type(stage)]
            groups.append(StageCharts(stage.name, kind, charts))
    return groups


def _charts(files: RunFiles, stage: StagePlan) -> Iterator[Chart | None]:
    records = files.of_stage(stage.name)
    if isinstance(stage, EvalPlan):
        yield _evaluation(stage, records)
        return
    if isinstance(stage, SftPlan):
        yield chart(f"{stage.name}-loss", "Loss", [series("loss", records, "loss/mean")])
    else:
        yield from _training(stage, records)
    yield from _optimiser(stage, records)
    yield _service(stage, records)


def _training(stage: TrainPlan, records: Sequence[Record]) -> Iterator[Chart | None]:
    name, envs = stage.name, [env.name for env in stage.envs]
    rewards = [series(env, records, f"reward/{env}", f"reward_std/{env}") for env in envs]
    roles = _roles(records, envs)
    if len(envs) > 1:
        rewards.append(series("all", records, "reward/mean"))
        rewards = [curve and evolve(curve, spread=None) for curve in rewards]
    note = "band: one standard deviation of the episodes" if len(envs) == 1 else ""
    yield chart(f"{name}-reward", "Reward", rewards, note=note)
    yield chart(f"{name}-roles", "Reward by role", roles)
    lengths = [series(env, records, f"length/{env}") for env in envs]
    yield chart(f"{name}-length", "Sampled tokens per episode", lengths, bounds=(0, None))
    turns = [series(env, records, f"turns/{env}") for env in envs]
    if any(curve and max(curve.values) > 1 for curve in turns):
        yield chart(f"{name}-turns", "Turns per episode", turns, bounds=(0, None))
    yield _kl(stage, records)
    yield _containing(stage, records, "entropy", "Entropy")
    yield _groups(stage, records)
    yield _staleness(stage, records)
    yield _shares(stage, records)
    yield _failures(stage, records)


def _roles(records: Sequence[Record], envs: Sequence[str]) -> list[Series | None]:
    keys = {key for record in records for key in record}
    roles = sorted(k for k in keys if k.count("/") == 2 and k.startswith("reward/"))
    return [
        series(key.removeprefix("reward/"), records, key)
        for key in roles
        if key.split("/")[1] in envs
    ]


def _kl(stage: TrainPlan, records: Sequence[Record]) -> Chart | None:
    curves = [
        series("sampler to trainer", records, "kl/sample_train"),
        series("from the reference", records, "kl/reference"),
    ]
    return chart(f"{stage.name}-kl", "KL divergence", curves, note="nats per sampled token")


def _containing(stage: TrainPlan, records: Sequence[Record], word: str, title: str) -> Chart | None:
    keys = dict.fromkeys(key for record in records for key in record if word in key)
    return chart(f"{stage.name}-{word}", title, [series(key, records, key) for key in keys])


def _groups(stage: TrainPlan, records: Sequence[Record]) -> Chart | None:
    """Groups that teach something, and those that do not, one way or the other."""
    known = [r for r in records if "groups/all_good" in r]
    mixed = [r | {"groups/mixed": 1 - r["groups/constant"]} for r in known]
    curves = [
        series("mixed", mixed, "groups/mixed"),
        series("all solved", records, "groups/all_good"),
        series("all alike, unsolved", records, "groups/all_bad"),
    ]
    note = "share of the groups; only mixed ones teach where members are compared"
    return chart(f"{stage.name}-groups", "Groups", curves, note=note, bounds=(0, 1))


def _staleness(stage: TrainPlan, records: Sequence[Record]) -> Chart | None:
    curve = series("mean", records, "rollouts/staleness")
    if curve is None or not any(curve.values):
        return None
    most = stage.overlap.max_staleness
    return chart(
        f"{stage.name}-staleness",
        "Staleness of the rollouts",
        [curve],
        note=f"optimiser steps since the weights they were sampled from; at most {most}",
        bounds=(0, most),
    )


def _shares(stage: TrainPlan, records: Sequence[Record]) -> Chart | None:
    """What ended before its time, where anything did."""
    played = [r for r in records if r.get("rollouts/played")]
    shares = [
        record
        | {
            f"share/{kind}": record.get(f"rollouts/{kind}", 0) / record["rollouts/played"]
            for kind in ("context_overflow", "cut_short")
        }
        for record in played
    ]
    curves = [
        series("replies at max_tokens", records, "turns/cut_off"),
        series("episodes over the context", shares, "share/context_overflow"),
        series("episodes over a limit", shares, "share/cut_short"),
    ]
    shown = [curve for curve in curves if curve is not None and any(curve.values)]
    return chart(f"{stage.name}-limits", "Cut short", shown, note="share", bounds=(0, None))


def _failures(stage: TrainPlan, records: Sequence[Record]) -> Chart | None:
    causes = sorted({k for record in records for k in record if k.startswith("failures/")})
    filled = [dict.fromkeys(causes, 0.0) | record for record in records]
    curves = [series(key.removeprefix("failures/"), filled, key) for key in causes]
    title = "Failed rollouts by cause"
    return chart(f"{stage.name}-failures", title, curves, bounds=(0, None))


def _optimiser(stage: TrainPlan | SftPlan, records: Sequence[Record]) -> Iterator[Chart | None]:
    for key, title in _OPTIMISER:
        curve = series(title, records, key)
        if curve is not None and (key != "optim/lr" or min(curve.values) != max(curve.values)):
            yield chart(f"{stage.name}-{key[6:]}", title.capitalize(), [curve], bounds=(0, None))


def _service(stage: TrainPlan | SftPlan, records: Sequence[Record]) -> Chart | None:
    keys = sorted({key for record in records for key in record if key.startswith("service/")})
    curves = [series(key.removeprefix("service/"), records, key) for key in keys]
    return chart(f"{stage.name}-service", "The service", curves, bounds=(0, None))


def _evaluation(stage: EvalPlan, records: Sequence[Record]) -> Chart | None:
    prefix = f"eval/{stage.name}/"
    faults = (f"{prefix}failed", f"{prefix}cut_off")
    keys = dict.fromkeys(
        key
        for record in records
        for key in record
        if key.startswith(prefix) and key not in faults and is_number(record[key])
    )
    curves = [series(key.removeprefix(prefix), records, key) for key in keys]
    note = f"{stage.tasks:,} tasks, {stage.samples:,} samples each"
    x_name = f"step of {stage.after}" if stage.after else "step"
    title = f"Evaluation {stage.name}"
    return chart(f"{stage.name}-eval", title, curves, note=note, bounds=(0, 1), x_name=x_name)
