"""What a plan asks for that this runtime cannot do yet, found before anything starts."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlc.catalog.environments import env_facts, files_of, with_role
from rlc.catalog.index import aggregate_traits, source_traits, tracker_traits
from rlc.envs.preflight import source_problems
from rlc.plan.records import (
    EvalPlan,
    Plan,
    SftPlan,
    StagePlan,
    TrackPlan,
    TrainPlan,
    environments_of,
)
from rlc.runtime.records import RunError


def require_runnable(plan: Plan) -> None:
    """Raises RunError for a plan that this runtime cannot do, or that names files that are not
    there: everything that can be known before a folder is made or a token is paid for."""
    if missing := unsupported(plan):
        raise RunError(
            "this version cannot run the plan: " + "; ".join(missing),
            "`rlc explain` and `rlc check` know all of it; take out what is named to run the rest",
        )
    for stage in plan.stages:
        for path, what in _files(stage):
            if not Path(path).is_file():
                raise RunError(f"there is no file {path}, {what}")
    envs = [env for stage in plan.stages for env in environments_of(stage)]
    own = source_problems(envs, plan.recipe)
    if problems := [*unset_keys(plan), *own]:
        raise RunError("; ".join(problems))


def unsupported(plan: Plan) -> list[str]:
    """One sentence for each thing in the plan that cannot be run, in the recipe's own words;
    nothing where all of it can."""
    found = [text for stage in plan.stages for text in _stage(stage)]
    return list(dict.fromkeys(found))


def _stage(stage: StagePlan) -> Iterator[str]:
    if isinstance(stage, TrainPlan):
        yield from _training(stage)
    if isinstance(stage, SftPlan):
        yield from _data(stage)
    if not isinstance(stage, EvalPlan):
        yield from _trackers(stage.track)


def _training(stage: TrainPlan) -> Iterator[str]:
    yield from _tasks(stage)
    kind = stage.overlap.kind
    if kind != "synchronous" and stage.batch.kind == "turns":
        yield f"`{kind}()` cannot be combined with `turns()` yet: take `groups()`"
    if kind == "streamed":
        yield from _streamed(stage)


def _tasks(stage: TrainPlan) -> Iterator[str]:
    """What chooses among tasks compares the rollouts of one."""
    for env in stage.envs:
        chosen = with_role(env, "curriculum") is not None
        if chosen and not source_traits(env.source).numbered:
            yield f"`curriculum()` of `{env.name}`: the tasks of `{env.source}()` have no numbers"
        if env.rollouts.group == 1 and (chosen or stage.batch.resample):
            what = "`curriculum()`" if chosen else "`resample`"
            yield f"{what} compares the rollouts of a task, and `{env.name}` is played once each"


def _streamed(stage: TrainPlan) -> Iterator[str]:
    """The parts of a batch are trained on before all of it is known."""
    whole = "the whole batch, of which `streamed()` has only a part at a time"
    for step in stage.advantage.steps:
        over = getattr(step, "over", "group")
        if over not in ("group", "role"):
            yield f"`over = {over}` in the advantage needs {whole}"
    if aggregate_traits(stage.aggregate.kind).over is not None:
        yield f"`{stage.aggregate.kind}()` needs {whole}"
    if stage.kl is not None:
        yield f"the mean distance of `kl = reference(…)` needs {whole}"
    if stage.batch.updates > 1:
        yield f"`updates = {stage.batch.updates}` splits {whole}"


def _data(stage: SftPlan) -> Iterator[str]:
    env = stage.data.env
    if env is not None and stage.data.policy == "oracle" and not env_facts(env).oracle:
        yield f"`{env.name}` has no oracle: take `policy = model`"


def _trackers(trackers: Iterable[TrackPlan]) -> Iterator[str]:
    for tracker in trackers:
        package = tracker_traits(tracker.name).package
        if importlib.util.find_spec(package) is None:
            yield f"`{tracker.name}()` needs a package that is not here: pip install {package}"


def unset_keys(plan: Plan) -> Iterator[str]:
    """Keys of trackers that are not in the environment."""
    trackers = [t for s in plan.stages if not isinstance(s, EvalPlan) for t in s.track]
    for tracker in dict.fromkeys(tracker.name for tracker in trackers):
        key = tracker_traits(tracker).key
        if key is not None and not key.instead and not os.environ.get(key.variable):
            yield f"`{tracker}()` needs {key.variable} in the environment, and it is not set"


def _files(stage: StagePlan) -> Iterator[tuple[str, str]]:
    """The files that a stage reads, and what reads them."""
    if isinstance(stage, SftPlan) and stage.data.path is not None:
        yield stage.data.path, f"which `{stage.name}` reads"
    for env in environments_of(stage):
        yield from ((path, f"which `{env.name}` reads") for _, path in files_of(env))
