"""What a plan needs of the machine that runs it: packages, and keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata

from rlc.catalog.environments import env_facts, played_as, rubrics_of
from rlc.catalog.facts.models import TINY
from rlc.catalog.index import source_traits, tracker_traits, wrapper_traits
from rlc.catalog.packages import packages_of, packages_of_file
from rlc.emit.job.wheel import constraints
from rlc.emit.job.wheel import requirements as requirements_of_rlc
from rlc.plan.asked import asked_models
from rlc.plan.environments import EndpointPlan, EnvPlan
from rlc.plan.paths import hub_dataset
from rlc.plan.records import LOCAL, Plan

KEY_OF_TINKER = "TINKER_API_KEY"


def extras(plans: Iterable[Plan], sweeps: bool) -> list[str]:
    """Return the extras of rlc that plans need, in order."""
    found = {"sweep"} if sweeps else set[str]()
    for plan in plans:
        found |= {"local" if service == LOCAL else "tinker" for service in services(plan)}
        for env in _environments(plan):
            found |= {extra for extra, _ in _in_extras(env)}
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
        for env in _environments(plan):
            in_extras = {package for _, package in _in_extras(env)}
            found |= {p: None for _, p in packages_of(env) if p not in in_extras}
        for stage in plan.stages:
            for path in (data.file for data in stage.data if data.file is not None):
                named = ("datasets",) if hub_dataset(path) else packages_of_file(path)
                found |= dict.fromkeys(named)
            trackers = stage.track
            found |= {tracker_traits(one.name).package: None for one in trackers}
            if (objective := stage.policy_gradient) and objective.loss.program is not None:
                found["torch"] = None
    return sorted(filter(None, map(_pinned, found)))


def variables(plan: Plan) -> list[str]:
    """Return the variables of the environment that hold what the plan needs to be secret."""
    return list(dict.fromkeys(_variables(plan)))


def commands(plan: Plan) -> list[str]:
    """Return the commands of the machine that agents are."""
    agents = (env.agent for env in _environments(plan) if env.agent is not None)
    first = (agent.command[0] for agent in agents if agent.command)
    return list(dict.fromkeys(word for word in first if os.sep not in word))


def _variables(plan: Plan) -> Iterator[str]:
    if services(plan) != {LOCAL}:
        yield KEY_OF_TINKER
    for env in _environments(plan):
        source = source_traits(env.source)
        if source.key and not env.args.get("base_url"):
            yield source.key.variable
        if "openrouter" in env_facts(env).needs:
            yield "OPENROUTER_API_KEY"
        for args in (env.args, *(wrapper.args for wrapper in env.wrappers)):
            yield from args.get("secrets") or ()
        for _, _, judge in rubrics_of(env):
            if isinstance(judge.model, EndpointPlan) and judge.model.key:
                yield judge.model.key
    for stage in plan.stages:
        for tracker in stage.track:
            if key := tracker_traits(tracker.name).key:
                yield key.variable


def _in_extras(env: EnvPlan) -> Iterator[tuple[str, str | None]]:
    """The extras of rlc that an environment needs, each with the package in it that it is for."""
    for player in map(source_traits, dict.fromkeys((env.source, played_as(env)))):
        if player.extra:
            yield player.extra, player.package
    for wrapper in env.wrappers:
        if needed := wrapper_traits(wrapper.name).package_of(wrapper.args):
            package, extra = needed
            yield extra, package


def _environments(plan: Plan) -> list[EnvPlan]:
    return [env for stage in plan.stages for env in stage.environments]


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
