"""What a plan needs of the machine that runs it: packages, and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata

from rlc.catalog.facts.models import TINY
from rlc.catalog.requirements import requirements
from rlc.emit.job.wheel import constraints
from rlc.emit.job.wheel import requirements as requirements_of_rlc
from rlc.plan.leaves import asked_models
from rlc.plan.models import LOCAL
from rlc.plan.records import Plan


def extras(plans: Iterable[Plan], sweeps: bool) -> list[str]:
    """Return the extras of rlc that plans need, in order."""
    found = {"sweep"} if sweeps else set[str]()
    found |= {one.extra for plan in plans for one in requirements(plan) if one.extra}
    return sorted(found)


def services(plan: Plan) -> set[str]:
    """Return the services of a plan's models, those that are only asked too."""
    asked = (state.model for stage in plan.stages for _, state in asked_models(stage))
    return {model.service for model in (*(stage.model for stage in plan.stages), *asked)}


def computes_here(plan: Plan) -> bool:
    """Return whether a model is trained or asked on the machine itself, and is no toy."""
    asked = (state.model for stage in plan.stages for _, state in asked_models(stage))
    models = (*(stage.model for stage in plan.stages), *asked)
    return any(model.service == LOCAL and model.base != TINY for model in models)


def packages(plans: Iterable[Plan], own: Iterable[str]) -> list[str]:
    """Return the packages that plans need beside those of rlc's extras, and the user's ``own`` code
    does, as pip takes them: with the version that rlc was tested with, or that is here."""
    found = dict.fromkeys(own)
    for plan in plans:
        every = [one for one in requirements(plan) if one.kind == "package"]
        in_extras = {one.name for one in every if one.extra and one.path.split(".")[2] != "model"}
        found |= {one.name: None for one in every if not one.extra and one.name not in in_extras}
    return sorted(filter(None, map(_pinned, found)))


def variables(plan: Plan) -> list[str]:
    """Return the variables of the environment that hold what the plan needs to be secret."""
    return list(dict.fromkeys(one.name for one in requirements(plan) if one.kind == "key"))


def commands(plan: Plan) -> list[str]:
    """Return the commands of the machine that agents are."""
    return list(dict.fromkeys(one.name for one in requirements(plan) if one.kind == "command"))


def _pinned(package: str) -> str | None:
    """A package as a requirement. None: rlc comes along with it."""
    name = _plain(package)
    if name == "rlc":
        return None
    if name in {_plain(line) for line in constraints().splitlines()}:
        return package
    for line in requirements_of_rlc():
        if _plain(line) == name:
            return line.partition(";")[0].strip()
    try:
        return f"{package}=={metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return package


def _plain(requirement: str) -> str:
    """The name in a requirement, as indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip())[0]).lower()
