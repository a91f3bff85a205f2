"""The requirements of a recipe where it is run: packages, keys, files, code, servers, weights.
Checks, explanations, the preflight of a run and emitted jobs filter this list, and phrase it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rlc.catalog.environments import (
    code_of,
    code_of_data,
    env_facts,
    files_of,
    functions_of,
    is_included,
    played_as,
    rubrics_of,
)
from rlc.catalog.index import (
    grader_traits,
    players_traits,
    source_traits,
    tracker_traits,
    wrapper_traits,
)
from rlc.catalog.packages import COOKBOOK, CUSTOM_LOSSES, TINKER_SDK
from rlc.catalog.providers import find_provider
from rlc.catalog.records import Key
from rlc.plan import (
    LOCAL,
    TINKER,
    EndpointPlan,
    EnvPlan,
    LossPlan,
    ModelPlan,
    Plan,
    hub_dataset,
    is_hosted,
    is_saved_set,
    is_text_file,
)
from rlc.plan.leaves import children_of, models_of
from rlc.records import evolve, frozen

_HERE = ("numpy", "torch", "transformers", "safetensors", TINKER_SDK, COOKBOOK)
_HOSTED = ("numpy", "transformers", TINKER_SDK, COOKBOOK)
_BRIDGED = ("httptools", "starlette", "uvicorn")
_OF_HUB, _OF_COLUMNS, _OF_OWN_LOSSES = "datasets", "pyarrow", "torch"
_KEYS = {"openrouter": Key("OPENROUTER_API_KEY", "for the models that the game asks itself")}
# What an environment does when it is made, for people.
_BEGINNINGS = {
    "nltk": "the word list of nltk, downloaded when the run starts",
    "patience": "more than ten seconds to begin a game",
}

Kind = Literal[
    "service",
    "package",
    "client",
    "key",
    "file",
    "data set",
    "code",
    "program",
    "command",
    "server",
    "weights",
    "beginning",
]


@frozen(eq=False)
class Requirement:
    """One thing that a run needs, or uses. ``name``: of a package as pip calls it, of a variable, a
    path, an address. ``path``: the dotted path of what needs it, within its stage or the plan;
    ``by``: its name for people. ``extra``: rlc's extra with the package. ``purpose``: what it is
    for, ``instead``: what will do in place of a key; empty if there is nothing to say."""

    kind: Kind
    name: str
    path: str
    by: str
    extra: str = ""
    purpose: str = ""
    instead: str = ""


def requirements(plan: Plan) -> tuple[Requirement, ...]:
    """Return everything that a plan needs, each with the path of what needs it."""
    return tuple(
        evolve(one, path=f"stages.{stage.name}.{one.path}")
        for stage in plan.stages
        for one in requirements_of(stage.name, children_of(stage) or {})
    )


def requirements_of(stage: str, parts: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield what a stage needs, as far as its ``parts`` are known, with paths within the stage."""
    for env in parts.get("envs", ()):
        yield from _of_env(env, f"envs.{env.name}")
    for name in ("data", "heldout"):
        if (data := parts.get(name)) is not None:
            yield from _of_data(data, name, stage)
    for path, own in functions_of(parts):
        yield Requirement("code", f"the function {own.target}", path, stage)
    loss = parts.get("loss")
    if isinstance(loss, LossPlan) and loss.program is not None:
        what = f"`{loss.name}` is traced with it"
        by = f"the loss `{loss.name}`"
        yield Requirement("package", _OF_OWN_LOSSES, "loss", by, purpose=what)
        yield Requirement("package", CUSTOM_LOSSES, "loss", by, TINKER)
    for teacher in parts.get("teacher", ()):
        if teacher.system is not None and is_text_file(teacher.system):
            yield Requirement("file", teacher.system, "teacher", stage)
    if (players := parts.get("players")) is not None:
        traits_of_players = players_traits(players.kind)
        if traits_of_players.package:
            who, extra = f"`{players.kind}()`", traits_of_players.extra or ""
            yield Requirement("package", traits_of_players.package, "players", who, extra)
    for tracker in parts.get("track", ()):
        traits, by = tracker_traits(tracker.name), f"`{tracker.name}()`"
        if traits.key:
            yield _key(traits.key, "track", by)
        yield Requirement("package", traits.package, "track", by)
    for path, model in models_of(parts):
        yield from _of_model(path, model)


def service_packages(service: str) -> dict[str, str]:
    """Return the packages that a model needs, by the service that trains it, each with rlc's extra
    that has it."""
    if not is_hosted(service):
        return dict.fromkeys(_HERE, LOCAL)
    there = find_provider(service)
    own = {} if there is None or there.package is None else {there.package: ""}
    if there is not None and there.bridge is not None:
        own = dict.fromkeys(_BRIDGED, "serve")
    return dict.fromkeys(_HOSTED, TINKER) | own


def _of_model(path: str, model: ModelPlan) -> Iterator[Requirement]:
    yield Requirement("service", model.service, path, model.name)
    for package, extra in service_packages(model.service).items():
        kind: Kind = "package" if extra else "client"  # which is looked for when it is opened
        yield Requirement(kind, package, path, model.name, extra)
    there = find_provider(model.service)
    if there is not None and there.key is not None:
        yield Requirement("key", there.key, path, model.name, purpose=f"for {there.title}")
    if model.weights is not None:
        yield Requirement("weights", model.weights, f"{path}.weights", model.name)


def _of_data(data: Any, path: str, stage: str) -> Iterator[Requirement]:
    for env in data.environments:
        yield from _of_env(env, f"{path}.env")
    if data.file is not None and hub_dataset(data.file) is not None:
        yield Requirement("data set", data.file, f"{path}.path", stage)
        yield Requirement("package", _OF_HUB, f"{path}.path", stage)
    elif data.file is not None:
        yield from _of_file(data.file, f"{path}.path", stage)
    if (code := code_of_data(data)) is not None:
        module = code.target.rpartition(":")[0]
        yield Requirement("code", f"the Python module {module}", f"{path}.builder", stage)


def _of_file(file: str, path: str, by: str) -> Iterator[Requirement]:
    yield Requirement("file", file, path, by)
    yield from (Requirement("package", one, path, by) for one in packages_of_file(file))


def packages_of_file(file: str) -> tuple[str, ...]:
    """Return what it takes to read a file of data."""
    columns = file.endswith((".parquet", ".arrow")) or is_saved_set(file)
    return (_OF_COLUMNS,) if columns else ()


def _of_env(env: EnvPlan, at: str) -> Iterator[Requirement]:
    by, source = env.name, source_traits(env.source)
    for player in dict.fromkeys((source, source_traits(played_as(env)))):
        if player.package and not (player is source and is_included(env)):
            yield Requirement("package", player.package, f"{at}.id", by, player.extra or "")
    if source.key:
        if own := env.args.get("base_url"):
            what = f"the OpenReward server at {own}"
            yield Requirement("server", own, f"{at}.args.base_url", by, purpose=what)
        else:
            yield _key(source.key, f"{at}.id", by)
    yield from _secrets(env.args.get("secrets"), f"{at}.args.secrets", by)
    for path, code in code_of(env):
        if code.kind == "weights":
            yield Requirement("code", f"the function {code.target}", f"{at}.{path}", by)
        elif source.code and path == "id":
            what = f"the Python module {code.target.rpartition(':')[0]}"
            yield Requirement("code", what, f"{at}.{path}", by)
    script = env.play.script if env.play is not None else None
    if script is not None and script.function:
        yield Requirement("code", f"the function {script.function}", f"{at}.play.script", by)
    if env.agent is not None:
        yield Requirement("program", env.agent.called, f"{at}.agent", by)
        yield from _secrets(env.agent.secrets, f"{at}.agent.secrets", by)
        first = env.agent.command[0] if env.agent.command else ""
        if first and os.sep not in first:
            yield Requirement("command", first, f"{at}.agent.command", by)
    yield from _of_facts(env, f"{at}.id")
    for part in env.graders:
        if package := grader_traits(part.grader).package:
            yield Requirement("package", package, f"{at}.graders.{part.name}", by)
    for wrapper in env.wrappers:
        yield from _of_wrapper(wrapper.name, wrapper.args, f"{at}.wrappers.{wrapper.name}", by)
    for path, _, judge in rubrics_of(env):
        if isinstance(judge.model, EndpointPlan):
            url = judge.model.url
            if judge.model.key:
                yield _key(Key(judge.model.key, f"for {url}"), f"{at}.{path}", judge.name)
            what = f"the endpoint {url}"
            yield Requirement("server", url, f"{at}.{path}", judge.name, purpose=what)
    for path, file in files_of(env):
        yield from _of_file(file, f"{at}.{path}", by)


def _of_facts(env: EnvPlan, path: str) -> Iterator[Requirement]:
    """What an environment downloads, or asks for, when it is made."""
    for need in env_facts(env).needs:
        if need == "hub":
            yield Requirement("data set", "", path, env.name)
            yield Requirement("package", _OF_HUB, path, env.name)
        elif need in _KEYS:
            yield _key(_KEYS[need], path, env.name)
        else:
            yield Requirement("beginning", _BEGINNINGS[need], path, env.name)


def _of_wrapper(name: str, args: Mapping[str, Any], path: str, by: str) -> Iterator[Requirement]:
    traits = wrapper_traits(name)
    if needed := traits.package_of(args):
        package, extra = needed
        yield Requirement("package", package, path, by, extra)
    if traits.server:
        address = str(args[traits.server])
        what = f"the server of `{name}()`, {address}"
        yield Requirement("server", address, path, by, purpose=what)
    yield from _secrets(args.get("secrets"), path, f"`{name}()`")


def _secrets(names: Sequence[str] | None, path: str, by: str) -> Iterator[Requirement]:
    for secret in names or ():
        yield Requirement("key", secret, path, by, purpose=f"{by} asks for it")


def _key(key: Key, path: str, by: str) -> Requirement:
    return Requirement("key", key.variable, path, by, purpose=key.purpose, instead=key.instead)
