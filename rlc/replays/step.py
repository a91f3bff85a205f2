"""Replays a step: computes what it came to, and what it would have, and puts both side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np

from rlc.plan import Change, PolicyGradient, Training
from rlc.replays.changes import changed_stage
from rlc.replays.outcomes import (
    DatumOutcome,
    ObjectiveOutcome,
    added,
    awaited,
    by_component,
    by_environment,
    outcome_of,
    signs,
)
from rlc.replays.record import ReplayedEpisode, ReplayedSequence, ReplayedSide
from rlc.replays.recorded import RecordedRun, RecordedStep, ReplayError
from rlc.replays.texts import Replay


def replay_step(
    path: Path,
    step: int | None = None,
    settings: Sequence[str] = (),
    stage: str | None = None,
    gradient: bool = False,
    bisect: str | None = None,
) -> Replay:
    """Replay a step of the run in a folder; see :func:`rlc.replay`."""

    async def opened() -> Replay:  # in one thread, as a journal has to be
        run = RecordedRun.open(path)
        try:
            of, at = run.stage(stage), step
            if bisect is not None:
                from rlc.replays.bisection import first_step

                at = first_step(run, of, bisect)
            elif at is None:
                at = run.steps(of.name)[-1].step
            return await _replayed(run, of, at, settings, gradient)
        finally:
            run.journal.close()

    return awaited(opened())


async def _replayed(
    run: RecordedRun, stage: Training, step: int, settings: Sequence[str], gradient: bool
) -> Replay:
    recorded, notes = run.read(stage, step), list[str]()
    changed, changes = stage, tuple[Change, ...]()
    if settings:
        changed, changes = changed_stage(run, stage, settings, gradient)
    outcomes = [await outcome_of(run, stage, recorded, as_it_was=True)]
    same = changed.of(PolicyGradient).advantage == stage.of(PolicyGradient).advantage
    if settings:
        outcomes.append(await outcome_of(run, changed, recorded, as_it_was=same))
    sides = []
    for outcome, as_it_was in zip(outcomes, (True, same), strict=False):
        try:
            parts = await by_component(run, recorded, outcome, as_it_was)
        except ReplayError as error:
            parts = {}
            notes.append(f"no shares of components: {error.message}")
        sides.append(_side(outcome, parts))
    notes += _notes(recorded, outcomes)
    taken = None
    if gradient:
        from rlc.replays.gradients import compared_gradients

        taken = await compared_gradients(run, recorded, outcomes)
    return Replay(
        str(run.path),
        stage.name,
        step,
        sides[0],
        sides[1] if settings else None,
        tuple(settings),
        changes,
        _episodes(recorded, outcomes),
        differences(recorded, outcomes[0]),
        _cosine(*outcomes) if len(outcomes) > 1 else None,
        tuple(dict.fromkeys(notes)),
        taken,
    )


def _side(outcome: ObjectiveOutcome, components: Mapping[str, float]) -> ReplayedSide:
    objective = outcome.objective
    formula = {"advantage": objective.advantage.name, "loss": objective.loss.name}
    formula["aggregate"] = objective.aggregate.kind
    if objective.kl is not None:
        formula["kl"] = f"coef {objective.kl.coef:g}"
    for teacher in objective.teacher:
        formula["teacher" + (f" {teacher.name}" if teacher.name else "")] = f"coef {teacher.coef:g}"
    values = list(signs(outcome).values())
    measures = (("mean", fmean), ("std", pstdev), ("min", min), ("max", max))
    spread = {name: float(of(values)) for name, of in measures if values}
    return ReplayedSide(
        formula,
        spread,
        (sum(value != 0 for value in values), len(values)),
        outcome.loss,
        outcome.metrics,
        {} if outcome.batch is None else by_environment(outcome),
        components,
        outcome,
    )


def _notes(recorded: RecordedStep, outcomes: Sequence[ObjectiveOutcome]) -> list[str]:
    notes = list[str]()
    if any(outcome.batch is None for outcome in outcomes):
        whole = sum(bool(one.turns) for one in recorded.rollouts)
        notes.append(
            f"the tokens of {len(recorded.complete):,} of {whole:,} episodes were kept: losses, "
            "weights and shares of the gradient need all (`rlc run --tokens all`)"
        )
    assumed = max(outcome.assumed for outcome in outcomes)
    if assumed:
        notes.append(
            f"the run took no gradient of {assumed:,} sequences, so the trainer's logprobs of them "
            "are not known: the sampler's stand in their place, a ratio of 1"
        )
    if any(one.loss is None for outcome in outcomes for one in outcome.datums):
        notes.append(
            "the loss is not known: a teacher's tokens, or what comes between replies, are in it, "
            "and their logprobs were not kept"
        )
    for outcome in outcomes[1:]:
        updates = outcome.batch.minibatches if outcome.batch else []
        if len(updates) > 1:
            notes.append(
                f"of {len(updates)} updates in a step those after the first are taken at the "
                "weights that the run had then"
            )
    if function := next((o.objective.advantage.function for o in outcomes[:1]), None):
        notes.append(f"`{function}` was called as it is now")
    return notes


def _episodes(
    recorded: RecordedStep, outcomes: Sequence[ObjectiveOutcome]
) -> tuple[ReplayedEpisode, ...]:
    advantages = [signs(outcome) for outcome in outcomes]
    sizes = [outcome.sizes() for outcome in outcomes]
    wholes = [math.fsum(size.values()) for size in sizes]
    datums = [_of_rollouts(outcome) for outcome in outcomes]
    found = []
    for row in outcomes[0].credited:
        rollout, key = row.rollout, id(row.rollout)
        record = recorded.records[key]
        turns = record["turns"]
        rows = [by.get(key, ()) for by in datums]
        found.append(
            ReplayedEpisode(
                *(rollout.env, rollout.task, rollout.member, rollout.role, rollout.reward),
                rollout.error,
                str(turns[0]["observation"]) if turns else "",
                str(turns[-1]["action"]) if turns else "",
                tuple(by.get(key, 0.0) for by in advantages),
                tuple(
                    size.get(key, 0.0) / whole if whole else 0.0
                    for size, whole in zip(sizes, wholes, strict=True)
                ),
                tuple(
                    next((one.datum.weight * one.datum.folded for one in own), None) for own in rows
                ),
                tuple(tuple(_sequence(recorded, one) for one in own) for own in rows),
            )
        )
    return tuple(found)


def _of_rollouts(outcome: ObjectiveOutcome) -> dict[int, list[DatumOutcome]]:
    found: dict[int, list[DatumOutcome]] = {}
    for one in outcome.datums:
        if one.loss is not None:
            found.setdefault(one.key[0], []).append(one)
    return found


def _sequence(recorded: RecordedStep, one: DatumOutcome) -> ReplayedSequence:
    datum = one.datum
    return ReplayedSequence(
        [*datum.inputs, int(datum.targets_T[-1])],
        datum.mask_T,
        datum.logprobs_T,
        recorded.sequences[one.key].trainer_T[: len(datum.inputs)],
        datum.advantages_T,
        one.gradient_T,
        one.loss,
    )


def differences(recorded: RecordedStep, outcome: ObjectiveOutcome) -> dict[str, float]:
    """Return the largest difference of what was computed anew from what the run journalled, by what
    it is of, in parts of it where that is above 1."""
    found: dict[str, float] = {}

    def differ(name: str, one: float, other: float) -> None:
        if not (math.isnan(one) and math.isnan(other)):
            size = max(1.0, abs(other))
            found[name] = max(found.get(name, 0.0), abs(one - other) / size)

    for row in outcome.credited:
        journalled = recorded.records[id(row.rollout)].get("advantages") or []
        own = row.advantages_T.tolist()
        if len(own) != len(journalled):
            differ("advantages", 1.0, 0.0)
        for one, other in zip(own, journalled, strict=False):
            differ("advantages", one, other)
    for one in outcome.datums:
        kept = recorded.sequences.get(one.key)
        if one.loss is None or kept is None or kept.weight is None:
            continue
        differ("weights", one.datum.weight * one.datum.folded, kept.weight)
        mask_T = np.zeros(len(kept.sampled_T), np.bool_)
        mask_T[: len(one.datum.mask_T)] = one.datum.mask_T
        now_S = (one.datum.advantages_T / one.datum.folded)[one.datum.mask_T]
        gap_S = np.abs(now_S - kept.advantages_S[mask_T[kept.sampled_T]])
        differ("advantages of tokens", float(gap_S.max(initial=0.0)), 0.0)
    trained = {one.key for one in outcome.datums}
    for key, kept in recorded.sequences.items():
        if outcome.batch is not None and kept.weight is not None and key not in trained:
            differ("weights", 0.0, kept.weight)
    for name, value in outcome.metrics.items():
        if name in recorded.metrics and recorded.metrics[name] is not None:
            differ(name, value, float(recorded.metrics[name]))
    return found


def _cosine(one: ObjectiveOutcome, other: ObjectiveOutcome) -> float | None:
    if one.batch is None or other.batch is None:
        return None
    first, second = one.gradients(), other.gradients()
    sizes = [math.sqrt(math.fsum(float(g @ g) for g in of.values())) for of in (first, second)]
    if not all(sizes):
        return None
    none = np.zeros(0)
    both = []
    for key in {*first, *second}:
        g, h = first.get(key, none), second.get(key, none)
        length = max(len(g), len(h))
        both.append(float(added(np.zeros(length), g) @ added(np.zeros(length), h)))
    return math.fsum(both) / (sizes[0] * sizes[1])
