"""What runs have shown of episodes, for the price of a plan that plays the same.

Episodes count for a stage if the same decides them: model, environment, sampling, and the contents
of files and code that the environment names. They are those of a probe, of an evaluation, or of the
first steps of a training stage, whose later steps show how lengths drift. Runs are read where they
are, in the folder ``runs``, so that a probe and a run are one kind of evidence, and what is deleted
is forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rlc.catalog import plan_from_file
from rlc.plan import (
    JOURNAL_FILE,
    PLAN_FILE,
    RUNS_FOLDER,
    EnvPlan,
    Evaluation,
    ModelPlan,
    Plan,
    PlanFormatError,
    StagePlan,
    build_graph,
    plan_hash,
    plan_to_dict,
)
from rlc.plan.leaves import asked_models
from rlc.pricing import (
    LENGTH_DRIFT,
    SIGNAL_DRIFT,
    DriftRange,
    MeasuredEpisodes,
    Seen,
    extends_prefix,
)
from rlc.records import evolve, frozen
from rlc.runtime import METRICS_FILE, ROLLOUTS_FILE, Journal, Record, RunError, read_lines

RUNS = Path(RUNS_FOLDER)
PROBE = "-probe-"  # in the name of a probe's folder
_NEWEST, _MOST_LINES = 60, 20_000  # runs that are looked at, and episodes of one
_FIRST_STEPS = 2  # of a training stage, whose episodes are those of the model as it begins
_LEAST_STEPS = 5  # of which a drift is read
_BETWEEN_RUNS = 1.15  # by which the drift of another run may exceed those that were seen
_CONSTANT = "groups/constant/"  # metrics of a step
_TRAINING = ("forward_backward", "optim_step")  # nodes of a step
_KINDS = ("prefill", "cached", "sampled", "trained")
BACKWARD = 3.0  # times as long a gradient takes as a forward pass
_ONE_GROUP = 0.5  # the relative error of the mean, where one group says nothing of it


def played_stages(plan: Plan) -> Iterator[tuple[StagePlan, EnvPlan]]:
    """Yield the environments that each stage plays with its own model."""
    for stage in plan.stages:
        for env in stage.played:
            yield stage, env


def probe_stage(stage: StagePlan, env: EnvPlan, name: str, tasks: int) -> Evaluation:
    """Return an evaluation that plays tasks of one environment of a stage as the stage does, with
    its model as it begins; weights of another stage of the job are those of its base model."""
    assert stage.sampling is not None
    return Evaluation(
        name=name,
        model=stage.model,
        after=None,
        envs=(evolve(env, weight=1.0),),
        tasks=tasks,
        samples=env.rollouts.group,
        sampling=stage.sampling,
        metrics=(),
        every=None,
        first=False,
    )


def episodes_key(stage: StagePlan, env: EnvPlan, plan: Plan, after: str | None = None) -> str:
    """Return the hash of all that decides episodes; ``after``: the stage that left the weights."""
    bare = evolve(
        env,
        name="env",
        rollouts=evolve(env.rollouts, group=1, max_failures=None, timeout=None, turn_timeout=None),
    )
    model = evolve(
        stage.model,
        name="model",
        lora_rank=1,
        train_mlp=True,
        train_attn=True,
        train_unembed=True,
        with_optimizer=False,
    )
    one = probe_stage(stage, bare, "probe", 1)
    one = evolve(one, model=model, samples=1, after=after)
    one = evolve(one, sampling=evolve(one.sampling, concurrency=None))
    text = json.dumps(plan_to_dict(Plan("", 0, (one,), build_graph(()))), default=str)
    named = tuple(file for file in plan.data if file.path in text)
    return plan_hash(Plan("", 0, (one,), build_graph(()), data=named))


@frozen
class _RunEpisodes:
    """The episodes of an environment in a run."""

    run: Path
    stage: StagePlan
    env: EnvPlan


def episodes_seen(plan: Plan, root: Path = RUNS) -> dict[str, Seen]:
    """Return what is known of the episodes of a plan, by its stages and their environments."""
    if not root.is_dir():
        return {}
    wanted: dict[str, list[tuple[StagePlan, EnvPlan]]] = {}
    for stage, env in played_stages(plan):
        for after in dict.fromkeys((stage.after, None)):
            wanted.setdefault(episodes_key(stage, env, plan, after), []).append((stage, env))
    found: dict[str, list[_RunEpisodes]] = {}
    for run, other in _similar_plans(plan, root):
        for stage, env in played_stages(other):
            key = episodes_key(stage, env, other, stage.after)
            if key in wanted:
                found.setdefault(key, []).append(_RunEpisodes(run, stage, env))
    seen: dict[str, dict[str, MeasuredEpisodes]] = {}
    for key, runs in found.items():
        for stage, env in wanted[key]:
            exact = stage.after is None or key == episodes_key(stage, env, plan, stage.after)
            own = seen.setdefault(stage.name, {})
            if env.name in own and not exact:
                continue  # what the weights themselves did says more than their base model
            one = _combined(runs, stage)
            if one is not None:
                source = one.source if exact else f"{one.source}, of the model before {stage.after}"
                own[env.name] = evolve(one, source=source)
    return {name: own for name, own in seen.items() if own}


def _similar_plans(plan: Plan, root: Path) -> Iterator[tuple[Path, Plan]]:
    """Yield the newest runs that have episodes and name a model and an environment of a plan."""
    bases = {json.dumps(stage.model.base) for stage in plan.stages}
    ids = {json.dumps(os.path.basename(env.id))[1:-1] for _, env in played_stages(plan)}
    folders = [one for one in root.iterdir() if (one / ROLLOUTS_FILE).is_file()]
    folders.sort(key=lambda one: (one / ROLLOUTS_FILE).stat().st_mtime, reverse=True)
    for run in folders[:_NEWEST]:
        try:
            text = (run / PLAN_FILE).read_text(encoding="utf-8")
            if any(base in text for base in bases) and any(one in text for one in ids):
                yield run, plan_from_file(json.loads(text), run)[0]
        except (OSError, ValueError, KeyError, PlanFormatError):
            continue  # a damaged run, or one of a version whose builtins this one does not have


def _combined(runs: Sequence[_RunEpisodes], stage: StagePlan) -> MeasuredEpisodes | None:
    """Return the episodes of the run that has shown the most groups, with the drift of all."""
    read = list[MeasuredEpisodes]()
    for run in runs:
        with suppress(KeyError, TypeError, ValueError, RunError, OSError):  # a damaged run
            one = _read(run)
            read += [] if one is None else [one]
    if not read:
        return None
    best = max(read, key=lambda one: one.groups)
    drifts = dict[tuple[tuple[float, ...], tuple[float, ...]], None]()
    for run in runs:
        with suppress(KeyError, TypeError, ValueError, OSError):
            length, signal = _drifts(run, stage)
            drifts[tuple(length), tuple(signal)] = None  # a run that repeats another says no more
    lengths = [one for length, _ in drifts for one in length]
    signals = [one for _, signal in drifts for one in signal]
    return evolve(
        best,
        length_drift=_range(lengths, LENGTH_DRIFT),
        signal_drift=_range(signals, SIGNAL_DRIFT),
    )


def _range(factors: Sequence[float], assumed: DriftRange) -> DriftRange:
    if not factors:
        return assumed
    usual = exp(fmean(map(log, factors)))
    between = _BETWEEN_RUNS ** (2 / (1 + len(factors)))
    many = f"{len(factors)} earlier runs" if len(factors) > 1 else "an earlier run"
    return DriftRange(min(factors) / between, usual, max(factors) * between, many)


def _drifts(run: _RunEpisodes, planned: StagePlan) -> tuple[list[float], list[float]]:
    """Return by what factor length and signal of a training run differ, on average over its steps,
    from its first ones; nothing of a run that is much shorter than the ``planned`` stage."""
    steps, name = run.stage.steps, run.env.name
    if steps is None:
        return [], []
    records = [r for r in read_lines(run.run / METRICS_FILE) if r.get("stage") == run.stage.name]
    if len(records) < max(_LEAST_STEPS, (planned.steps or 0) / 2):
        return [], []
    found = []
    for values in (
        [float(r[f"length/{name}"]) for r in records if f"length/{name}" in r],
        [1 - float(r[_CONSTANT + name]) for r in records if _CONSTANT + name in r],
    ):
        first = fmean(values[:_FIRST_STEPS]) if values else 0.0
        mean = fmean(values) if values else 0.0
        found.append([mean / first] if first > 0 and mean > 0 else [])
    return found[0], found[1]


def _read(run: _RunEpisodes) -> MeasuredEpisodes | None:
    stage, training = run.stage, run.stage.steps is not None
    records = list[Record]()
    for record in islice(read_lines(run.run / ROLLOUTS_FILE), _MOST_LINES):
        if record.get("stage") == stage.name and record.get("env") == run.env.name:
            if training and int(record["step"]) > _FIRST_STEPS:
                break  # they are in the order of the steps
            records.append(record)
    metrics = [
        one
        for one in read_lines(run.run / METRICS_FILE)
        if one.get("stage") == stage.name and (not training or one["step"] <= _FIRST_STEPS)
    ]
    day = _day(run.run / PLAN_FILE)
    what = "probe" if PROBE in run.run.name else "run"
    one = measure(records, metrics, run.env, stage.model, f"{what} of {day} ({run.run})")
    if one is None or training or len(stage.played) > 1 or not asked_models(run.env):
        return one
    return evolve(one, asked=_asked(run.run, stage.name, metrics) / one.episodes)


def _asked(run: Path, stage: str, metrics: Sequence[Mapping[str, Any]]) -> float:
    """Return the tokens that other models than the one that plays took in an evaluation."""
    with closing(Journal(run / JOURNAL_FILE, read_only=True)) as journal:
        whole = journal.used(stage).tokens
    own = sum(float(one.get(f"tokens/{kind}", 0)) for one in metrics for kind in _KINDS)
    return max(whole - own - sum(float(one.get("forward/tokens", 0)) for one in metrics), 0.0)


def _day(path: Path) -> str:
    from datetime import date

    return date.fromtimestamp(path.stat().st_mtime).isoformat()


def measure(
    records: Iterable[Record],
    metrics: Sequence[Mapping[str, Any]],
    env: EnvPlan,
    model: ModelPlan,
    source: str,
) -> MeasuredEpisodes | None:
    """Return the means of the episodes in records of ``rollouts.jsonl``, and the error of them
    between groups; None if none was played to its end. ``metrics`` say what was cached."""
    groups: dict[tuple[int, int], dict[int, list[Record]]] = {}
    for record in records:
        group = groups.setdefault((record["step"], record["task"]), {})
        group.setdefault(record["member"], []).append(record)
    goes_on = extends_prefix(env, model, unknown=True)
    rows, of_groups, differ, again = list[list[float]](), list[float](), list[bool](), 0
    for group in groups.values():
        played = [parts for parts in group.values() if not any(part["error"] for part in parts)]
        again += len(group) - len(played)
        again += sum(len(part.get("retried", ())) for parts in group.values() for part in parts)
        mine = [_tokens(parts, goes_on) for parts in played if any(p["turns"] for p in parts)]
        if mine:
            rows += mine
            of_groups.append(fmean(row[1] + row[2] for row in mine))
        for role in dict.fromkeys(part["role"] for parts in played for part in parts):
            rewards = [p["reward"] for parts in played for p in parts if p["role"] == role]
            differ.append(len(set(rewards)) > 1)
    if not rows:
        return None
    prompt, prompts, replies, datums, sequences, turns = map(fmean, zip(*rows, strict=True))
    error = _ONE_GROUP
    if len(of_groups) > 1:
        error = stdev(of_groups) / sqrt(len(of_groups)) / fmean(of_groups)
    read, hits = (
        sum(float(one.get(f"tokens/{kind}", 0)) for one in metrics)
        for kind in ("prefill", "cached")
    )
    at_once, rollout_seconds, train_seconds = _seconds(metrics, len(of_groups))
    return MeasuredEpisodes(
        source=source,
        groups=len(of_groups),
        episodes=len(rows),
        prompt=prompt,
        prompts=prompts,
        replies=replies,
        datums=datums,
        sequences=sequences,
        turns=turns,
        cached=hits / (read + hits) if read + hits else 0.0,
        error=error,
        signal=fmean(differ),
        again=again / len(rows),
        at_once=at_once,
        rollout_seconds=rollout_seconds,
        train_seconds=train_seconds,
    )


def _seconds(metrics: Sequence[Mapping[str, Any]], groups: int) -> tuple[float, float, float]:
    """Return how many groups were played at once, and how long that and training took: of steps
    that trained from their nodes, of a probe from its episodes and a forward pass."""
    played = [float(one["time/rollouts"]) for one in metrics if "time/rollouts" in one]
    if played:
        tokens = sum(float(one.get("tokens/trained", 0)) for one in metrics)
        spent = sum(float(one.get(f"time/{kind}", 0)) for one in metrics for kind in _TRAINING)
        return groups / len(played), fmean(played), spent / tokens if tokens else 0.0
    whole = sum(float(one.get("time/total", 0)) for one in metrics)
    tokens = sum(float(one.get("forward/tokens", 0)) for one in metrics)
    spent = sum(float(one.get("forward/seconds", 0)) for one in metrics)
    return float(groups), whole, BACKWARD * spent / tokens if tokens else 0.0


def _tokens(parts: Sequence[Record], goes_on: bool) -> list[float]:
    """Return of a rollout in all its roles: the tokens of first prompts, of all prompts, of
    replies, and of training sequences; the number of these, and of turns."""
    first = prompts = replies = datums = sequences = count = 0
    for part in parts:
        before = -1  # the tokens of the sequence so far
        for place, turn in enumerate(part["turns"]):
            prompt, reply = turn["prompt_tokens"], turn["tokens"]
            first += prompt * (place == 0)
            prompts, replies, count = prompts + prompt, replies + reply, count + 1
            if goes_on and 0 <= before <= prompt:
                datums += prompt + reply - before
            else:
                datums, sequences = datums + prompt + reply, sequences + 1
            before = prompt + reply
    return [float(one) for one in (first, prompts, replies, datums, sequences, count)]
