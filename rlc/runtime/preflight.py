"""What a plan asks for that this runtime cannot do yet, found before anything starts."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlc.catalog.index import aggregate_traits
from rlc.envs.build import SOURCES, WRAPPERS
from rlc.envs.gem.oracles import find_oracle
from rlc.envs.openreward.client import KEY as OPENREWARD
from rlc.envs.openreward.preflight import openreward_problems
from rlc.envs.preflight import source_problems
from rlc.envs.templates import TEMPLATE_FILES
from rlc.plan.records import EnvPlan, EvalPlan, Plan, SftPlan, StagePlan, TrackPlan, TrainPlan
from rlc.runtime.records import RunError

# Trackers, and the package that each needs.
_TRACKERS = {
    "wandb": "wandb",
    "trackio": "trackio",
    "tensorboard": "tensorboardX",
    "openreward_rollouts": "openreward",
}


# Sources whose tasks have numbers that say which one it is.
NUMBERED = ("openreward", "problems")


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
    envs = [env for stage in plan.stages for env in _environments(stage)]
    own = source_problems(envs, plan.recipe)
    if problems := [*unset_keys(plan), *openreward_problems(envs), *own]:
        raise RunError("; ".join(problems))


def unsupported(plan: Plan) -> list[str]:
    """One sentence for each thing in the plan that cannot be run, in the recipe's own words;
    nothing where all of it can."""
    found = [text for stage in plan.stages for text in _stage(stage)]
    return list(dict.fromkeys(found))


def _stage(stage: StagePlan) -> Iterator[str]:
    for env in _environments(stage):
        yield from _environment(env)
    if isinstance(stage, TrainPlan):
        yield from _training(stage)
    if isinstance(stage, SftPlan):
        yield from _data(stage)
    if not isinstance(stage, EvalPlan):
        yield from _trackers(stage.track)


def _environments(stage: StagePlan) -> Iterable[EnvPlan]:
    if isinstance(stage, SftPlan):
        return () if stage.data.env is None else (stage.data.env,)
    return stage.envs


def _environment(env: EnvPlan) -> Iterator[str]:
    if env.source not in SOURCES:
        yield f"`{env.source}()`, the source of `{env.name}`, cannot be played yet"
    for wrapper in env.wrappers:
        if wrapper.name not in WRAPPERS:
            yield f"`{wrapper.name}()` of `{env.name}` cannot be played yet"


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
        chosen = any(wrapper.name == "curriculum" for wrapper in env.wrappers)
        if chosen and env.source not in NUMBERED:
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
    if env is not None and stage.data.policy == "oracle" and find_oracle(env) is None:
        yield f"`{env.name}` has no oracle: take `policy = model`"


def _trackers(trackers: Iterable[TrackPlan]) -> Iterator[str]:
    for tracker in trackers:
        package = _TRACKERS.get(tracker.name)
        if package is None:
            yield f"`{tracker.name}()` is not among the trackers yet"
        elif importlib.util.find_spec(package) is None:
            yield f"`{tracker.name}()` needs a package that is not here: pip install {package}"


def unset_keys(plan: Plan) -> Iterator[str]:
    """Keys of trackers that are not in the environment."""
    trackers = [t for s in plan.stages if not isinstance(s, EvalPlan) for t in s.track]
    if any(t.name == "openreward_rollouts" for t in trackers) and not os.environ.get(OPENREWARD):
        yield f"`openreward_rollouts()` needs {OPENREWARD} in the environment, and it is not set"


def _files(stage: StagePlan) -> Iterator[tuple[str, str]]:
    """Files that a stage reads, and what they are to it."""
    if isinstance(stage, SftPlan) and stage.data.path is not None:
        yield stage.data.path, f"the rows of `{stage.name}`"
    for env in _environments(stage):
        for wrapper in env.wrappers:
            name = str(wrapper.args.get("name", ""))
            if wrapper.name == "template" and name.endswith(TEMPLATE_FILES):
                yield name, f"the template of `{env.name}`"
