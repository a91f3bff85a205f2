"""Packages that a recipe needs and that are not installed: looked for where code is tried, too, as
elsewhere they need not be there."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rlc.catalog.index import tracker_traits
from rlc.catalog.packages import SERVICE_PACKAGES, module_of, packages_of, packages_of_file
from rlc.check.rules.base import View


def check_packages(view: View) -> None:
    """Warn of each package once."""
    for path, package in _needed(view):
        message = f"this needs the package {package}, which is not installed here"
        if is_missing(package) and not any(item.message == message for item in view.found):
            advice = f"`pip install '{package}'`, if it is run here"
            view.found.warning("RL0513", view.at(path), message, advice)


def is_missing(package: str) -> bool:
    return find_spec(module_of(package)) is None


def _needed(view: View) -> Iterator[tuple[str, str]]:
    """The packages that a stage needs, each with the path of what needs it."""
    for env in view.parts.get("envs", ()):
        yield from ((f"envs.{env.name}.{path}", package) for path, package in packages_of(env))
    if (data := view.parts.get("data")) is not None and data.file is not None:
        yield from (("data.path", package) for package in packages_of_file(data.file))
    for tracker in view.parts.get("track", ()):
        yield "track", tracker_traits(tracker.name).package
    if (model := view.parts.get("model")) is not None:
        yield from (("model", package) for package in SERVICE_PACKAGES[model.service])
