"""What only the moment shows of a plan: packages, keys, files, servers, the user's own code."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence

from rlc.catalog import WeightsError, code_of_data, find_weights, is_run_weights, located_files
from rlc.catalog.requirements import Requirement, module_of, requirements
from rlc.data import DataError, load_attribute, require_fits, search_beside, signature_of
from rlc.envs import source_problems
from rlc.plan import ModelState, Plan, build_graph
from rlc.plan.leaves import asked_models
from rlc.pricing import judged_before
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
                    f"`expect {judged.text}` fails: {judged.said}",
                    "change the plan, or what is expected of it"
                    if one.quantity.kind == "value"
                    else "`rlc explain` shows what it is made of",
                )
    plan = located_files(plan)
    needed = requirements(plan)
    if lost := list(dict.fromkeys(_missing_files(needed))):
        raise RunError("; ".join(lost))
    envs = [env for stage in plan.stages for env in stage.environments]
    _require_packages(needed)  # without them nothing else can be tried
    tried = (_builders(plan), _weights(plan), _missing_keys(needed))
    problems = (one for each in tried for one in each)
    if found := list(dict.fromkeys([*problems, *source_problems(envs, plan.recipe)])):
        raise RunError("; ".join(found))


def _missing_files(needed: Sequence[Requirement]) -> Iterator[str]:
    for one in needed:
        if one.kind == "file" and not os.path.isfile(one.name):
            yield f"there is no file {one.name}, which `{one.by.strip('`')}` reads"


def _require_packages(needed: Sequence[Requirement]) -> None:
    """Raise RunError for packages that are not installed, with the one command that gets them."""
    absent = [one for one in needed if one.kind == "package" and not _is_installed(one.name)]
    if not absent:
        return
    by: dict[str, dict[str, None]] = {}
    for one in absent:
        by.setdefault(one.by if "`" in one.by else f"`{one.by}`", {})[one.name] = None
    what = "; ".join(f"{who} needs {', '.join(names)}" for who, names in by.items())
    extras = ",".join(sorted({one.extra for one in absent if one.extra}))
    others = dict.fromkeys(one.name for one in absent if not one.extra)
    install = " ".join([*([f"'rlc[{extras}]'"] if extras else []), *others])
    raise RunError(f"packages are missing: {what}", f"pip install {install}")


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(module_of(package)) is not None


def _missing_keys(needed: Sequence[Requirement]) -> Iterator[str]:
    """Keys that trackers miss; those of services, sources and judges are tried where they open."""
    for one in needed:
        is_given = one.instead or os.environ.get(one.name)
        if one.kind == "key" and one.path.endswith(".track") and not is_given:
            yield f"{one.by} needs {one.name} in the environment, and it is not set"


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
