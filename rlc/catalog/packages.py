"""The packages of others: what is installed of them here, and what a version of them lacks.

A package is called as pip calls it, with the oldest version that has what is needed, if an older
one that rlc takes has not: ``tinker>=0.36``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import cache

from rlc.version import PYTHON

# The oldest versions that rlc takes. What newer ones have is asked for beside it.
TINKER_SDK, COOKBOOK = "tinker>=0.34", "tinker-cookbook>=0.5.8"
CUSTOM_LOSSES = "tinker>=0.36"  # and what `rlc serve` answers with
ALL_CALLS = "tinker>=0.38"  # of the SDK, which `rlc conform` makes
TASKSETS, ENVIRONMENTS = "verifiers>=0.4", "verifiers<0.4"  # of verifiers, which has one of them
# The newest Python that a package installs on, where that is not every one that rlc runs on.
NEWEST_PYTHON = {"gem-llm": (3, 12, 0), ENVIRONMENTS: (3, 13)}
_MODULES = {"gem-llm": "gem"}


def name_of(package: str) -> str:
    """Return the name of a package alone, without extras and version."""
    return re.split(r"[\[<>=!]", package)[0]


def module_of(package: str) -> str:
    """Return the module that is imported of a package."""
    name = name_of(package)
    return _MODULES.get(name, name.replace("-", "_"))


def package_of(module: str) -> str:
    """Return the package that a module belongs to, whether it is installed here or not."""
    known = {module: package for package, module in _MODULES.items()}
    return (known.get(module) or installed_with(module) or module).replace("_", "-")


def installed_with(module: str) -> str | None:
    """Return the installed package that a module belongs to, as it calls itself; None if no package
    has the module."""
    return next(iter(_installed_packages().get(module, ())), None)


@cache
def _installed_packages() -> Mapping[str, list[str]]:
    """Return the installed packages by the modules they have. To find them takes a quarter of a
    second: each package is asked for all its files."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


def lacking(package: str) -> str | None:
    """Return how a package is here: "not installed here", or its version if that is too old, or too
    new; None if nothing is wrong with it."""
    module = importlib.util.find_spec(module_of(package))
    if module is None or module.origin is None:  # a folder beside a recipe is no package
        return "not installed here"
    name, bound, limit = re.split(r"(>=|<|$)", package, maxsplit=1)
    found = _installed(name) if bound else None
    older = found is not None and _numbers(found) < _numbers(limit)
    return f"{found} here" if found is not None and older == (bound == ">=") else None


def described(package: str, wrong: str) -> str:
    """Return the name of a package that is lacking, or, if it is there, with both versions."""
    return name_of(package) if wrong.startswith("not") else f"{package} ({wrong})"


def too_new(package: str) -> str:
    """Return what to do if this Python is too new for a package; nothing if it is not."""
    newest = NEWEST_PYTHON.get(package)
    if newest is None or sys.version_info[: len(newest)] <= newest:
        return ""
    least, most, this = (
        ".".join(map(str, version)) for version in (PYTHON, newest, sys.version_info[:3])
    )
    return (
        f"{package} needs a Python from {least} to {most}, and this is {this}: "
        f"make an environment with another, such as `uv venv --python {least}`"
    )


@cache
def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # a folder on the path
        return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
