"""Packages that a recipe needs and that are not installed: looked for where code is tried, too, as
elsewhere they need not be there."""

from __future__ import annotations

from importlib.util import find_spec

from rlc.catalog.requirements import module_of, requirements_of
from rlc.check.view import StageView


def check_packages(view: StageView) -> None:
    """Warn of each package once."""
    for one in requirements_of("", view.parts):
        if one.kind != "package" or not is_missing(one.name):
            continue
        message = f"this needs the package {one.name}, which is not installed here"
        if not any(item.message == message for item in view.found):
            advice = f"`pip install '{one.name}'`, if it is run here"
            view.found.warning("RL0513", view.at(one.path), message, advice)


def is_missing(package: str) -> bool:
    """Return whether a package is not installed."""
    return find_spec(module_of(package)) is None
