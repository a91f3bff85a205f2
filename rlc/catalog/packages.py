"""The packages that the parts of a recipe need where it is run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlc.catalog.environments import env_facts, files_of, played_as
from rlc.catalog.index import grader_traits, source_traits, wrapper_traits
from rlc.plan.environments import EnvPlan
from rlc.plan.paths import is_saved_set
from rlc.plan.records import LOCAL

# What a model needs, by the service that trains it.
SERVICE_PACKAGES = {
    LOCAL: ("numpy", "torch", "transformers", "safetensors", "tinker", "tinker-cookbook"),
    "tinker": ("numpy", "transformers", "tinker", "tinker-cookbook"),
}
_OF_HUB, _OF_COLUMNS = "datasets", "pyarrow"
_MODULES = {"gem-llm": "gem"}


def module_of(package: str) -> str:
    """The module that is imported of a package; its extras do not count."""
    name = re.sub(r"\[.*\]", "", package)
    return _MODULES.get(name, name.replace("-", "_"))


def packages_of(env: EnvPlan) -> Iterator[tuple[str, str]]:
    """What an environment needs, each package with the path in the plan's record of what needs
    it."""
    for player in dict.fromkeys((env.source, played_as(env))):
        if package := source_traits(player).package:
            yield "id", package
    if "hub" in env_facts(env).needs:
        yield "id", _OF_HUB
    for part in env.graders:
        if package := grader_traits(part.grader).package:
            yield f"graders.{part.name}", package
    for wrapper in env.wrappers:
        if needed := wrapper_traits(wrapper.name).package_of(wrapper.args):
            yield f"wrappers.{wrapper.name}", needed[0]
    for path, file in files_of(env):
        yield from ((path, package) for package in packages_of_file(file))


def packages_of_file(file: str) -> tuple[str, ...]:
    """What it takes to read a file of data."""
    columns = file.endswith((".parquet", ".arrow")) or is_saved_set(file)
    return (_OF_COLUMNS,) if columns else ()
