"""What only the moment shows of a plan: packages, keys, files, servers, the user's own code."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from rlc.catalog.environments import code_of_data, env_facts, files_of
from rlc.catalog.files import located_files
from rlc.catalog.index import tracker_traits
from rlc.catalog.saved_weights import WeightsError, find_weights, is_run_weights
from rlc.data.code.functions import (
    load_attribute,
    require_fits,
    search_beside,
    signature_of,
)
from rlc.data.errors import DataError
from rlc.data.sets.hub import MISSING, is_installed
from rlc.envs.build import source_problems
from rlc.plan.asked import asked_models
from rlc.plan.environments import is_text_file
from rlc.plan.graph import build_graph
from rlc.plan.models import ModelState
from rlc.plan.paths import hub_dataset
from rlc.plan.records import Plan
from rlc.pricing.quantities import judged_before
from rlc.runtime.records import RunError


def require_runnable(plan: Plan) -> None:
    """Raise RunError if something that a plan needs is missing, before a folder is made or a token
    is paid for. That the plan itself can be run was decided by the rules of `rlc check`, which see
    its stages: the graph that is run has to be theirs."""
    if plan.graph.edges != build_graph(plan.stages).edges:
        raise RunError(
            "the job graph is not that of the stages: they were changed, or another rlc made it",
            "compile the recipe again; in Python, `build_graph(plan.stages)` of `rlc.plan.graph` "
            "makes it anew",
        )
    if not plan.rehearses:
        for one, judged in judged_before(plan):
            if judged.holds is False:
                raise RunError(
                    f"`expect {judged.text}` does not hold: {judged.said}",
                    "change the plan, or what is expected of it"
                    if one.quantity.kind == "value"
                    else "`rlc explain` shows what it is made of",
                )
    plan = located_files(plan)
    if lost := list(dict.fromkeys(_missing_files(plan))):
        raise RunError("; ".join(lost))
    envs = [env for stage in plan.stages for env in stage.environments]
    missing = dict.fromkeys(
        [*_builders(plan), *_weights(plan), *_own_losses(plan), *_trackers(plan), *_data_sets(plan)]
    )
    if problems := [*missing, *source_problems(envs, plan.recipe)]:
        raise RunError("; ".join(problems))


def _missing_files(plan: Plan) -> Iterator[str]:
    for stage in plan.stages:
        files = [(path, env.name) for env in stage.environments for _, path in files_of(env)]
        paths = [data.file for data in stage.data if data.file is not None]
        files += [(path, stage.name) for path in paths if hub_dataset(path) is None]
        for teacher in stage.policy_gradient.teacher if stage.policy_gradient else ():
            if teacher.system is not None and is_text_file(teacher.system):
                files.append((teacher.system, stage.name))
        for path, reader in files:
            if not os.path.isfile(path):
                yield f"there is no file {path}, which `{reader}` reads"


def _builders(plan: Plan) -> Iterator[str]:
    """Python code that makes the data of stages, if it cannot be called as it will be."""
    search_beside(plan.recipe)
    for code in (code for s in plan.stages for code in filter(None, map(code_of_data, s.data))):
        try:
            require_fits(code, signature_of(load_attribute(code.target)))
        except DataError as error:
            yield str(error)


def _weights(plan: Plan) -> Iterator[str]:
    """Weights of other runs that are not there any more, or are on another service."""
    for stage in plan.stages:
        states = (ModelState(stage.model, stage.after), *(s for _, s in asked_models(stage)))
        for model in (state.model for state in states if state.after is None):
            if model.weights is None or not is_run_weights(model.weights):
                continue
            try:
                service = find_weights(model.weights).service
            except WeightsError as error:
                yield f"the weights of `{model.name}`: {error}"
                continue
            if service != model.service:
                yield (
                    f"the weights of `{model.name}` are of the service `{service}`, and it is on "
                    f"`{model.service}`"
                )


def _data_sets(plan: Plan) -> Iterator[str]:
    """Data sets of the hub, if the package that loads them is missing."""
    for stage in () if is_installed() else plan.stages:
        readers = [env.name for env in stage.environments if "hub" in env_facts(env).needs]
        paths = [data.file for data in stage.data if data.file is not None]
        readers += [stage.name for path in paths if hub_dataset(path) is not None]
        yield from (f"the data of `{reader}` {MISSING}" for reader in readers)


def _own_losses(plan: Plan) -> Iterator[str]:
    """Losses of the recipe's own, if the package that traces them is missing."""
    for stage in plan.stages if importlib.util.find_spec("torch") is None else ():
        objective = stage.policy_gradient
        if objective is not None and objective.loss.program is not None:
            yield f"the loss `{objective.loss.name}` is traced with torch: pip install torch"


def _trackers(plan: Plan) -> Iterator[str]:
    """Packages and keys that trackers miss."""
    for stage in plan.trainings:
        for tracker in stage.track:
            traits = tracker_traits(tracker.name)
            key = traits.key
            if importlib.util.find_spec(traits.package) is None:
                yield (
                    f"`{tracker.name}()` needs a package that is not here: pip install "
                    f"{traits.package}"
                )
            if key is not None and not key.instead and not os.environ.get(key.variable):
                yield (
                    f"`{tracker.name}()` needs {key.variable} in the environment, and it is not set"
                )
