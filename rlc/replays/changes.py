"""Another objective for a recorded stage: what ``--set`` makes of the recipe that it was run from.

The episodes are as they were sampled. So only what is computed of them can be another: what decides
how they are sampled, or what else the run does, is refused by its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rlc.catalog import located_files
from rlc.compile import load
from rlc.lang.render import render_human
from rlc.plan import Change, PolicyGradient, Rollouts, Training, value_changes
from rlc.records import evolve, fields
from rlc.replays.recorded import RecordedRun, ReplayError

_SAMPLED = "the episodes are those that the run has played"
_WHY = {
    "model": f"{_SAMPLED}, by the model that it is",
    "envs": f"{_SAMPLED}, in the environments that they are",
    "batch": f"{_SAMPLED}, so many of them",
    "sampling": f"{_SAMPLED}, sampled as they are",
    "overlap": f"{_SAMPLED}, sampled from the weights of their time",
    "on_error": "what failed has failed, and was tried again as often as it was",
    "give_up": "it decides when a run ends, and computes nothing",
    "kl_guard": "it decides when a run ends, and computes nothing",
    "save": "it decides what is kept, and computes nothing",
    "budget": "it decides when a run ends, and computes nothing",
    "track": "it decides where metrics are sent, and computes nothing",
    "deadlines": "they decide when a run ends, and compute nothing",
    "heldout": "the replay scores no held-out data",
    "every": "the replay scores no held-out data",
    "steps": "the schedules of a run depend on it, and the episodes are of one of its steps",
}
_PARTS = ("advantage", "aggregate", "loss", "kl", "teacher", "observations")


def changed_stage(
    run: RecordedRun, stage: Training, settings: Sequence[str], steps: bool = False
) -> tuple[Training, tuple[Change, ...]]:
    """Return the recorded stage with what ``settings`` change of it, and these changes. ``steps``:
    the optimiser may be another, since its step is taken too.

    Raise ReplayError if the recipe is gone or has errors, or for what cannot be replayed.
    """
    recipe = _recipe(run)
    compiled = [load(recipe, given, run.plan.seed) for given in ((), settings)]
    for one in compiled[::-1]:
        if one.plan is None and one.unmet is None:
            said = render_human(one.diagnostics, color=False).rstrip()
            raise ReplayError(f"{recipe} has errors with what is set\n{said}")
    before, after = (one.plan or one.unmet for one in compiled)
    assert before is not None
    assert after is not None
    stages = [
        next((s for s in plan.trainings if s.name == stage.name and s.policy_gradient), None)
        for plan in (before, after)
    ]
    if stages[0] is None or stages[1] is None:
        raise ReplayError(f"{recipe} no longer has the stage `{stage.name}` that the run had")
    found = list(value_changes(before, after))
    if not found:
        raise ReplayError(f"{' and '.join(settings)} changes nothing: the recipe says so already")
    whole = {one.partition("=")[0].strip() for one in settings}
    found.sort(key=lambda change: change.path not in whole)  # first what is named
    for change in found:
        if (why := _refusal(change, stage, stages[1].of(PolicyGradient), steps)) is not None:
            raise ReplayError(f"`{change.path}` cannot be replayed: {why}", _can(steps))
    new = _with_parts(stage, stages[0], stages[1], whole)
    plan = evolve(
        run.plan,
        recipe=recipe,
        stages=tuple(new if one.name == stage.name else one for one in run.plan.stages),
    )
    made = next(one for one in located_files(plan).trainings if one.name == stage.name)
    changes = tuple(value_changes(run.plan, evolve(plan, recipe=run.plan.recipe)))
    return made, changes


def _can(steps: bool) -> str:
    more = ", the optimiser" if steps else ""
    return (
        "what can: the advantage, the loss, its aggregation, `kl` and the teacher but for their "
        f"models, `observations`, `batch.updates`, `max_failures`{more}"
    )


def _recipe(run: RecordedRun) -> str:
    places = dict.fromkeys([run.plan.recipe, run.journal.meta("recipe") or run.plan.recipe])
    for place in places:
        if os.path.isfile(place):
            return place
    raise ReplayError(
        f"the recipe of {run.path} is not there any more: {' or '.join(places)}",
        "put it back, to say what another scheme is; without --set the run is enough",
    )


def _refusal(change: Change, stage: Training, new: PolicyGradient, steps: bool) -> str | None:
    """Return why a change to the objective ``new`` cannot be replayed; None if it can."""
    owner, _, path = change.path.partition(".")
    part, _, rest = path.partition(".")
    if owner != stage.name:
        if owner == "seed" or not owner.startswith("expect "):
            return f"it is no part of `{stage.name}`"
        return "expectations are of a run"
    if part == "optimizer":
        return None if steps else "it decides the step, which only `--gradient` takes"
    if part in ("kl", "teacher") and getattr(new, part):
        is_new = not {"coef", "discount", "final"} & {*rest.split(".")}
        return "its logprobs were not computed in the run" if is_new else None
    if part in _PARTS or path == "batch.updates" or path.endswith(".rollouts.max_failures"):
        return None
    return _WHY.get(part, _SAMPLED)


def _with_parts(stage: Training, old: Training, new: Training, whole: set[str]) -> Training:
    """Return the recorded stage with the parts in which two stages differ."""
    objective, changed = stage.of(PolicyGradient), dict[str, Any]()
    pair = old.of(PolicyGradient), new.of(PolicyGradient)
    for part in _PARTS:
        was, is_now = (getattr(one, part) for one in pair)
        recorded = getattr(objective, part)
        if was == is_now:
            continue
        if part in ("kl", "teacher"):
            changed[part] = _strengths(recorded, was, is_now, stage.name)
            continue
        if recorded != was and f"{stage.name}.{part}" not in whole:
            raise ReplayError(
                f"the `{part}` of the run is not that of its recipe, which was changed or --set",
                f"set the whole: `--set {stage.name}.{part}=…`",
            )
        changed[part] = is_now
    source, (was_source, new_source) = stage.of(Rollouts), (s.of(Rollouts) for s in (old, new))
    if was_source.batch.updates != new_source.batch.updates:
        source = evolve(source, batch=evolve(source.batch, updates=new_source.batch.updates))
    most = {env.name: env.rollouts.max_failures for env in new_source.envs}
    if most != {env.name: env.rollouts.max_failures for env in was_source.envs}:
        envs = tuple(
            evolve(e, rollouts=evolve(e.rollouts, max_failures=most.get(e.name)))
            for e in source.envs
        )
        source = evolve(source, envs=envs)
    optimizer = stage.optimizer if old.optimizer == new.optimizer else new.optimizer
    objective = evolve(objective, **changed)
    return evolve(stage, objective=objective, source=source, optimizer=optimizer)


def _strengths(recorded: Any, was: Any, now: Any, stage: str) -> Any:
    """Return a penalty, or teachers, with other strengths and the models of the run."""
    if not now:
        return now  # there is none
    if isinstance(recorded, tuple):
        rows = zip(recorded, was, now, strict=True)
        return tuple(_strengths(*row, stage) for row in rows)
    if recorded is None or was is None:
        raise ReplayError(
            f"`{stage}.kl` cannot be replayed: the run computed no logprobs of a reference",
            "a run with a small one keeps them: `kl = reference(policy.base, coef = 1e-6)`",
        )
    names = [
        name
        for name in ("coef", "discount", "final")
        if name in {f.name for f in fields(type(was))}
    ]
    given = {name: getattr(now, name) for name in names if getattr(was, name) != getattr(now, name)}
    return evolve(recorded, **given)
